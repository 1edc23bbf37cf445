"""What operators of a server for others see of it: its health, its logs, and its metrics."""
