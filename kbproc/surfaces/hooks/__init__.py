"""Answers lifecycle events of coding agents with what the store knows, and installs itself there.

Refuses to know: how a store answers, and what a client does with the answer.

Offers: command · deadline · run
May import: base · base.settings · base.text · engine.sources · engine.store · methods ·
    surfaces.mcp · surfaces.sharing
Light: yes
"""
