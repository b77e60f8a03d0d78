"""One file a peer: how its own users call it. Each runs in its peer's environment."""
