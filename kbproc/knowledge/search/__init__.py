"""Turns a query into a page of hits.

Refuses to know: the wire, and how each channel ranks inside.

Offers: duplicates · evaluation.asking · evaluation.collection · evaluation.told ·
    hits · params · places · probability · search · similar · turns
May import: base · base.text · engine.events · engine.sources · engine.models ·
    engine.projections · engine.store · knowledge.documents
Light: yes
"""
