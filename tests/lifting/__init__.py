"""Lifting: one plan of a run, and what a person is asked (DESIGN 4.11)."""
