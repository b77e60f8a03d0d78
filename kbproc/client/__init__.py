"""Speaks to a kbproc from outside: it starts one and asks it, over pipes.

Refuses to know: any other room.

Offers: nothing
May import: nothing
Light: yes
"""
