"""Runs: driving, journaling, questions to people, forks and recovery."""
