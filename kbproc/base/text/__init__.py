"""Turns texts into words, and finds the part of a text that answers a query.

Refuses to know: indexes, scores and where texts come from.

Offers: analysis · caches · claims · forms · instruction · language · likeness · names · passage ·
    query · secrets · snippet · stems · typos · verbatim
May import: base
Light: yes
"""
