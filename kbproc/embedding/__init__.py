"""Chunks get their vectors in the background.

Refuses to know: how a model computes and how vectors are searched.

Offers: background · parsers · past · status
May import: base · sources · models · views · store
Light: yes
"""
