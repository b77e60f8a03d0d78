"""Notes of agents: folder and log kept in step.

Refuses to know: the wire and methods.

Offers: background · change · diff · note · notebook · plan · revision · sync
May import: base · events · notefiles · views · store · documents · agents
Light: yes
"""
