"""The command line (`docs/cli.md`). Modules here import the bridge only when a command needs it."""
