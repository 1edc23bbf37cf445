"""What a shared server shows to its operators: its health, its logs, and its metrics."""
