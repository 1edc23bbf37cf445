"""Minds: the models and programs that answer Requests."""
