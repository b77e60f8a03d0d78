"""Moves data between stores: backup, export, import.

Refuses to know: who asks for it.

Offers: backup · incoming.agents · incoming.matching · incoming.run · outgoing · portable
May import: base · engine.log · engine.events · engine.sources ·
    engine.projections · engine.store · knowledge.documents · knowledge.agents ·
    knowledge.watching
Light: yes
"""
