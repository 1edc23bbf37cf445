"""PostgreSQL: a store for several servers (`pip install ideabridge[postgres]`)."""
