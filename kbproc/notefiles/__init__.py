"""A folder of Markdown that people edit too, and no text in it is lost.

Refuses to know: agents, the log and what a note is to it.

Offers: edit · file · folder · hidden · watch
May import: base
Light: yes
"""
