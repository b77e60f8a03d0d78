"""Chunks get their vectors in the background.

Refuses to know: how a model computes and how vectors are searched.

Offers: background · cluster.command · cluster.erasing · cluster.node · model · parsers ·
    past · status
May import: base · log · sources · models · views · store
Light: yes
"""
