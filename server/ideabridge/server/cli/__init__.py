"""The command line (`docs/cli.md`). The files here import the bridge only when a command needs
it.
"""
