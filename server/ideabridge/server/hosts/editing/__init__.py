"""Editing: change one entry of a host's file, and keep every other byte of the file."""
