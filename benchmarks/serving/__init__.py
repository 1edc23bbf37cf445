"""Real servers and their clients, for benchmarks."""
