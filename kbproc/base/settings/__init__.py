"""What a person chose, and what chose it: flags, environment, links, profiles, defaults.

Refuses to know: what a store holds.

Offers: config · profiles · toml · trust
May import: base
Light: yes
"""
