"""A person's settings and where each comes from: flags, environment, links, profiles, defaults.

Refuses to know: what a store holds.

Offers: config · profiles · purged_files · toml · trust
May import: base
Light: yes
"""
