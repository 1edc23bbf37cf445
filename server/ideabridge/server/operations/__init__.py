"""What operators of a shared server see of it: its health, its logs, and its metrics."""
