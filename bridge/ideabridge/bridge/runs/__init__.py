"""Runs at work: driving, journaling, people who decide, forks and recovery."""
