"""Keeps documents in step with the folders that a person has named, while the store is open.

Refuses to know: the wire, and how a file becomes a document.

Offers: background · watch
May import: base · base.settings · engine.events · engine.sources · engine.projections ·
    engine.store · knowledge.documents
Light: yes
"""
