"""Imports what another store has exported."""
