"""The minds, which are the models and programs that answer Requests."""
