"""Asking the host: its model by sampling, its user by forms."""
