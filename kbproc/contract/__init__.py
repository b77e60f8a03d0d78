"""The judge of the contract kit: other implementations' servers, and clients, from outside.

Offers: command · kit · watching
May import: nothing
Light: yes
"""
