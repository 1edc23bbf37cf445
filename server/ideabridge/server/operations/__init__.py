"""Show operators the health, logs and metrics of a shared server."""
