"""Replaying published ideas (DESIGN 4.11)."""
