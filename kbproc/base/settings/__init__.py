"""A person's settings and where each comes from: flags, environment, links, profiles, defaults.

Refuses to know: what a store holds.

Offers: config · held · profiles · toml · trust
May import: base
Light: yes
"""
