"""What the command line and the page show about runs: histories and open decisions."""
