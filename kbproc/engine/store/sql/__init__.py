"""One read-only SELECT in a process of its own."""
