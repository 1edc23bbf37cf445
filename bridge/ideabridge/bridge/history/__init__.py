"""Histories: the conversations that hosts keep on this machine, as runs that ideas can be
published from.
"""
