"""Checks of engines."""


def engines():
    return []


def leftovers():
    return []
