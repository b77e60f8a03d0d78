"""Chunks get their vectors in the background.

Refuses to know: how a model computes and how vectors are searched.

Offers: background · model · parsers · past · status
May import: base · engine.sources · engine.models · engine.projections · engine.store
Light: yes
"""
