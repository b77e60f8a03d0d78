"""All that a store's owner keeps open, and the order of opening and closing.

Refuses to know: methods, requests and processes.

Offers: past · switch · upkeep
May import: base · log · views · store · embedding
Light: yes
"""
