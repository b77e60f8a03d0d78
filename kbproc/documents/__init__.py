"""Documents and knowledge entries, from content to revision: ingest, change, chains, deletion.

Refuses to know: the wire, agents and search.

Offers: chains · chunk · content · document · documents · entries · ingest · kb · revision
May import: base · events · sources · views · store · embedding
Light: yes
"""
