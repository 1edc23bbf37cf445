"""Driving: which process drives a run, and what the other processes hear of it."""
