"""Out of one store and into another: backup, export, import.

Refuses to know: who asks for it.

Offers: backup · incoming.agents · incoming.contents · incoming.matching · incoming.run ·
    outgoing · place · portable.file · portable.lines
May import: base · text · settings · log · events · sources · views · store · documents · agents
Light: yes
"""
