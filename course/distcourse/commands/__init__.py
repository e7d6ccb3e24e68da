"""`distlearn labs` and `distlearn course`: registered in the group `distlearn.commands`."""
