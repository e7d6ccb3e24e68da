"""The cost of a model, measured and counted; every layer computes its own (`flops`, `bytes_moved`)."""
