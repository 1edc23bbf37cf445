"""What a run of this bridge can currently call, and the catalogues of individual runs."""
