"""How a text becomes words, and which stretch of it answers a query.

Refuses to know: indexes, scores and where texts come from.

Offers: analysis · forms · language · likeness · names · passage · query · sentences · snippet ·
    stems · typos · verbatim
May import: nothing
Light: yes
"""
