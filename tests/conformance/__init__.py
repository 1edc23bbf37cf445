"""The official conformance suite of the protocol, run against a reference server and
through the gateway.
"""
