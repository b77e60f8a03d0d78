"""The truth: numbered, chained, durable records of opaque events.

Refuses to know: what events mean.

Offers: choice · file · interface · jetstream.connection · jetstream.erasing · jetstream.making ·
    jetstream.refill · jetstream.settings · jetstream.stream · lease · record
May import: base
Light: yes
"""
