"""Asking: asks the client's model by sampling, and its user through forms."""
