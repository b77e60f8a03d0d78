"""Nodes of a cluster embed each text once, and workers without a store help them."""
