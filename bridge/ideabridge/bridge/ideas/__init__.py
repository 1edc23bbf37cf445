"""Ideas and the store that keeps them and the journals of runs (DESIGN 4.11, 7)."""
