"""Servers and workers on one store in PostgreSQL, behind a balancer, on one machine:
`make demo-cluster`.
"""
