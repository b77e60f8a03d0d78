"""Shares one store among processes: the owner, attached clients and takeover.

Refuses to know: what requests mean.

Offers: command · inside · link · reach · serve
May import: base · base.settings · engine.log · engine.store · knowledge.agents · knowledge.app ·
    methods.calls · methods · client · surfaces.wire
Light: yes
"""
