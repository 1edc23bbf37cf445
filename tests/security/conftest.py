"""Fixtures of the command line for the attacks on it."""

from tests.cli.conftest import home, ideabridge, project

__all__ = ["home", "ideabridge", "project"]
