"""Fewer bytes: weights that share values, 8-bit integers, activations that are computed again."""
