"""What the repository derives from the declared methods and keeps: schemas, pages, maps.

Refuses to know: how a method is carried out, and what a client does with what it is given.

Offers: gen · markdown · pages
May import: base · calls · mcp
Light: yes
"""
