"""Out of one store and into another: backup, export, import.

Refuses to know: who asks for it.

Offers: backup · incoming.agents · incoming.contents · incoming.incoming · outgoing · place ·
    portable.lines · portable.reading
May import: base · log · events · notefiles · views · store · documents · agents
Light: yes
"""
