"""Models by name from the model hub: found in its cache, else downloaded when a command asks."""
