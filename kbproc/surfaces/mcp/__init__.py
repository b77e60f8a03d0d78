"""Offers the methods as tools of the Model Context Protocol, on stdin and stdout.

Refuses to know: what methods do, and which process owns the store.

Offers: serve · toolbox
May import: base · base.settings · engine.store · methods.calls · methods · client ·
    surfaces.wire · surfaces.sharing
Light: yes
"""
