"""Takes a newcomer to the first answers: looks, plans, does what is agreed to, and undoes it.

Refuses to know: how a store answers, and how a client's settings are changed.

Offers: command
May import: base · base.settings · engine.events · engine.sources · engine.models · engine.store ·
    knowledge.documents · methods · surfaces.sharing · surfaces.setup
Light: yes
"""
