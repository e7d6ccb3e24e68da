"""The cost of a model: `summary` computes it without running the model, the other modules measure or count it."""
