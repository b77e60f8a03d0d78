"""Serves a page, where a person looks into the store, corrects it and approves plans.

Refuses to know: what methods do, and which process owns the store.

Offers: run
May import: base · base.settings · surfaces.wire · surfaces.sharing
Light: yes
"""
