"""Makes and reads conversations, whose answers are streams.

Refuses to know: the wire, and which process owns the store.

Offers: asking · citations · live · making · reading · retrieval · rules · session
May import: base · base.text · engine.events · engine.models · engine.projections · engine.store ·
    knowledge.documents · knowledge.search
Light: yes
"""
