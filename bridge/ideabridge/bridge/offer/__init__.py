"""The offer: everything that a run of this bridge could call now, and the catalogues taken from
it.
"""
