"""What the repository derives from the declared methods: schemas, types of clients, pages, its map.

Refuses to know: how a method is carried out, and what a client does with what it is given.

Offers: gen · markdown
May import: base · calls · mcp
Light: yes
"""
