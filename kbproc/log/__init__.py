"""The truth: numbered, chained, durable records of opaque events.

Refuses to know: what events mean.

Offers: file · record · segment · survey
May import: base
Light: yes
"""
