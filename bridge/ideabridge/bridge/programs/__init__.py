"""Programs: Python text in place of a list of calls. A sandboxed interpreter runs it in a worker
process.
"""
