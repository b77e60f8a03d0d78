"""The truth: numbered, chained, durable records of opaque events.

Refuses to know: what events mean.

Offers: file · interface · lease · record
May import: base
Light: yes
"""
