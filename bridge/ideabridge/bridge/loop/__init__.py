"""The agent loop: a pure machine, its graph, and the runner that performs its effects (DESIGN 4.4)."""
