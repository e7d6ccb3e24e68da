"""Training state: what a rank holds, how it is stored, how often it should be saved."""
