"""Decide which process drives a run, and keep the other processes informed."""
