"""Offer: everything that a run of this bridge could call now, and the catalogues that runs take
from it.
"""
