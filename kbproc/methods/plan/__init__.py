"""plan.*: what agents asked for and no person has confirmed."""
