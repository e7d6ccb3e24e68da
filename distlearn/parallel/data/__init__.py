"""Strategies in which every rank holds the whole model: buckets, compression, local SGD."""
