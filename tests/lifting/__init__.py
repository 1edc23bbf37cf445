"""Lifting: one plan of a run, and what a person is asked."""
