"""Public data as runs: tasks with the true calls, and the environments they were written for."""
