"""Sixty faults of the library that its tests must find: `python -m tests.mutants` plants each one and runs the tests.

A fault is a text of the library and what it becomes. To choose some by name: `python -m tests.mutants ring adam`.
"""
