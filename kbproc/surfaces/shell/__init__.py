"""Runs command lines: commands, flags, formats, help, exit codes.

Refuses to know: how a request is carried out.

Offers: cli · fastpath
May import: base · base.settings · engine.store · engine.cluster · knowledge.search ·
    methods.calls · methods · client · contract · surfaces.wire · surfaces.sharing ·
    surfaces.mcp · surfaces.hooks · surfaces.setup · surfaces.start · surfaces.page
Light: yes
"""
