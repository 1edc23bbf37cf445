"""`ideabridge setup`: everything that a new user needs, in one command that can be undone."""
