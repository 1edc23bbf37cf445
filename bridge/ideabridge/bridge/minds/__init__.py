"""Minds: whoever answers a Request."""
