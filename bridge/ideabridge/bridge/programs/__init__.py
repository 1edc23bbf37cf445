"""Programs: runs Python text in place of a list of calls, with a sandboxed interpreter in a worker
process.
"""
