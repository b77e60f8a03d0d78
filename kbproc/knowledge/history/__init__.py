"""Reads the past of a store, restores earlier states and erases documents for good.

Refuses to know: params and the wire.

Offers: chain · compact · feed · forgotten · note_files · purge · restore · reversal · revert ·
    revisions · timeline
May import: base · base.settings · base.text · engine.log · engine.events · engine.projections ·
    engine.store · engine.embedding · knowledge.documents · knowledge.agents
Light: yes
"""
