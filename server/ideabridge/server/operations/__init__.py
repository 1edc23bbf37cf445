"""What those who run a server for others see of it: its health, its logs, and its metrics."""
