"""Describe the histories of runs and open decisions, for the command line and the page."""
