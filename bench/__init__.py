"""Measures speed: each leg against its floor, in the same run. `python -m bench --help`."""
