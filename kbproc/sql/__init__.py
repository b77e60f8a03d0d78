"""One read-only SELECT in a process of its own.

Refuses to know: methods and the log.

Offers: query
May import: base · store
Light: yes
"""
