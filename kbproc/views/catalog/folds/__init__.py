"""folds."""
