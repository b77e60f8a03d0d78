"""JSON-RPC over lines: messages, connections, requests in flight and parked.

Refuses to know: what a method does, and which process owns the store.

Offers: connection · deadlines · in_flight · lines · logs · messages · outbox · service · stream
May import: base · settings · library · calls
Light: yes
"""
