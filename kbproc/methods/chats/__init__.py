"""doc.*: documents."""
