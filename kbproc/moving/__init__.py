"""moving."""
