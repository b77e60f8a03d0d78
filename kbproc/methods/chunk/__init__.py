"""chunk.*: chunks of documents."""
