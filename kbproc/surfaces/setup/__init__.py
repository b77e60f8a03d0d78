"""Puts the server, the hooks and the skill into the settings of clients, and removes them.

Refuses to know: how a store answers, and what a client does with the answer.

Offers: command · change · hooks · servers · skills
May import: base · base.settings · engine.store · surfaces.sharing · surfaces.mcp ·
    surfaces.hooks
Light: yes
"""
