"""Opens a store's log, and makes its process a node: the only one, or one of a cluster.

Refuses to know: the wire, and which part of an open store is made when.

Offers: alone · choice · joining · moving
May import: base · base.settings · engine.log · engine.events · engine.projections ·
    engine.store · engine.embedding · engine.cluster · knowledge.documents · knowledge.agents ·
    knowledge.history · knowledge.sessions
Light: yes
"""
