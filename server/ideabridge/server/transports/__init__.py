"""How hosts connect: stdio and HTTP, identities and bounds."""
