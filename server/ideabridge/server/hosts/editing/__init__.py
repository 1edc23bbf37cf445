"""Change one entry in a host's file, and leave every other byte untouched."""
