"""The store of ideas, publications and runs."""
