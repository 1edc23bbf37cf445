"""Tools, activities, and the schemas composed from them (DESIGN 4.2)."""
