"""Programs: Python text in place of a list of calls, run by a sandboxed interpreter in a
worker process.
"""
