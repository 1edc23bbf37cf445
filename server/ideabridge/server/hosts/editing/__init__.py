"""Editing: changes one entry of a host's file, and keeps every other byte of the file."""
