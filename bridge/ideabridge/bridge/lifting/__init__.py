"""Lifting runs into plans."""
