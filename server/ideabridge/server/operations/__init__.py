"""What those who run a server for others see of it: its health, its log of requests,
and its metrics.
"""
