"""Answers lifecycle events of coding agents with what the store knows.

Refuses to know: how a store answers, and what a client does with the answer.

Offers: counting · deadline · options · protocol · run · worth
May import: base · base.settings · base.text · engine.events · engine.sources · engine.store ·
    methods · client · surfaces.sharing
Light: yes
"""
