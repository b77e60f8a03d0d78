"""From text to vectors, behind one interface.

Refuses to know: chunks, packs, and when something is embedded.

Offers: catalogue · interface
May import: base
Light: no
"""
