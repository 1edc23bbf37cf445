"""Lifting: turns runs into plans."""
