"""Questions to the client: to its model by sampling, to its user by forms."""
