"""model.*: embedding models."""
