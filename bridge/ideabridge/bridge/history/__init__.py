"""Histories: turns the conversations that hosts keep on this machine into runs that can be
published.
"""
