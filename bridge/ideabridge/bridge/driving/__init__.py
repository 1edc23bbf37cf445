"""Driving: decides which process drives a run, and keeps the other processes informed."""
