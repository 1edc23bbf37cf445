"""The agent loop: a pure state machine and its parts, without I/O, clocks or tasks."""
