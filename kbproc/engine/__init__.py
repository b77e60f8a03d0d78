"""The store's engine: the log, its events, sources, models, and the projections of the log."""
