"""Editing: changes one entry in a host's file, and keeps every other byte of the file."""
