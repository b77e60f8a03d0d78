"""Several nodes share a log, a stream of NATS JetStream, and embed each text once.

Refuses to know: what events mean, and how a store is moved to a stream and back.

Offers: interface · jetstream.erasing · jetstream.making · jetstream.refill · jetstream.settings ·
    jetstream.stream · opening · work.command · work.erasing · work.node
May import: base · engine.log · engine.sources · engine.models · engine.projections ·
    engine.store · engine.embedding
Light: yes
"""
