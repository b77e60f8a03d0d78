"""One file a peer, which calls it as its users do, in the peer's environment."""
