"""Documents and knowledge entries, from content to revision: ingest, change, chains, deletion.

Refuses to know: the wire, agents and search.

Offers: adding · chains · chunk · content · deletion · document · earlier · entry · indexed ·
    ingest · kb · lookup · revision · selection
May import: base · text · events · sources · views · store · embedding
Light: yes
"""
