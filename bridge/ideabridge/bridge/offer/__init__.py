"""Offer: everything that a run of this bridge could call now, and the catalogues of individual
runs.
"""
