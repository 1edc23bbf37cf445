"""The command line (`docs/cli.md`). These modules import the bridge only when a command needs
it.
"""
