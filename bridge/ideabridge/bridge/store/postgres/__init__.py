"""Keep a store in PostgreSQL, for several servers (`pip install ideabridge[postgres]`)."""
