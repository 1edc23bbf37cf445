"""Run Python text instead of a list of calls, in a sandboxed interpreter in a worker process."""
