"""The portable NDJSON of exports and imports."""
