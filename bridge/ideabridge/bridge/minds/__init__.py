"""Minds: whoever answers a Request (DESIGN 5)."""
