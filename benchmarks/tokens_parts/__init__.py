"""The parts of `tokens.py`: a module with a large catalogue, and tasks over it and
the memory server.
"""
