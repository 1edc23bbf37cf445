"""A home of nobody's, a project folder and the command, as the tests of the command
line have them.
"""

from tests.cli.conftest import home, ideabridge, project

__all__ = ["home", "ideabridge", "project"]
