"""Strategies whose ranks do not wait for each other: parameter server, EASGD, Hogwild."""
