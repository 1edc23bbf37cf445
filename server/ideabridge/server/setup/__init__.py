"""Carry out `ideabridge setup`, which does everything that a new user needs and can be undone."""
