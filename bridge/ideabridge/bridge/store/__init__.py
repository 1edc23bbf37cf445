"""Store: ideas, publications and runs."""
