"""Strategies whose ranks do not wait for each other: the parameter server."""
