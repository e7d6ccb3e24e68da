"""Fewer bytes: weights that share values, 8-bit integers, recomputed activations."""
