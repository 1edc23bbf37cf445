"""Hosts: finds, reads and writes the MCP configurations of hosts (the programs that run
assistants).
"""
