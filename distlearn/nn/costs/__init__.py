"""What a model costs: `summary` and `count` say it without running the model, the others measure it."""
