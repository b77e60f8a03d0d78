"""From arguments to an exit code: commands, flags, formats, help.

Refuses to know: how a request is carried out.

Offers: cli · fastpath
May import: base · settings · store · embedding · search · sessions · calls · methods · wire ·
    sharing · mcp · client · repo
Light: yes
"""
