"""Documents and knowledge entries, from content to revision: ingest, change, chains, deletion.

Refuses to know: the wire, agents and search.

Offers: adding · anchors · chats · content · document · entry · ingest · kb · lookup · moves ·
    review · revision · selection · trust
May import: base · base.settings · base.text · engine.events · engine.sources ·
    engine.projections · engine.store · engine.embedding
Light: yes
"""
