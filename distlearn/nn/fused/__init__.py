"""The fast ways to convolve on a CPU."""
