"""The store, which keeps ideas, publications, runs and settings in SQLite or PostgreSQL."""
