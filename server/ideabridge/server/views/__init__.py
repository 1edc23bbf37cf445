"""What the command line and the page show of runs: histories, and open decisions."""
