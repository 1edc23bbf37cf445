"""Programs: runs Python text in place of a list of calls, in a sandboxed interpreter in a worker
process.
"""
