"""The offer: everything that a run of this bridge could call now, and the catalogues that are taken
from it.
"""
