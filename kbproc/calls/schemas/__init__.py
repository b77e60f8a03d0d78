"""JSON Schemas of all that crosses the wire, and the check against them."""
