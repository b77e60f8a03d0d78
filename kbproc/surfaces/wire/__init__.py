"""Serves JSON-RPC over lines: messages, connections, requests in flight and parked.

Refuses to know: what a method does, and which process owns the store.

Offers: connection · in_flight · jsonrpc · lines · logs · messages · outbox
May import: base · base.settings · knowledge.app · methods.calls
Light: yes
"""
