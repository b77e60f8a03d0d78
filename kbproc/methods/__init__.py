"""The methods, a file each: methods/<noun>/<verb>.py is <noun>.<verb>.

Refuses to know: each other, surfaces, and how a plan is confirmed or a record appended.

Offers: all
May import: base · base.settings · engine.events · engine.sources · engine.models ·
    engine.projections · engine.store · engine.embedding · knowledge.documents ·
    knowledge.watching · knowledge.agents · knowledge.search · knowledge.history ·
    knowledge.transfer · knowledge.sessions · knowledge.cluster · knowledge.app · methods.calls
Light: yes
"""
