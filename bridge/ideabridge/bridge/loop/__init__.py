"""The agent loop: a pure machine, its graph, and the runner that performs its effects."""
