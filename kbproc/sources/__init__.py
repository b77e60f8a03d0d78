"""From a source's bytes to blocks and chunks: files, web pages, parsers, and the bytes kept.

Refuses to know: documents, stores and events.

Offers: blobs · chunk · gitignore · parse.formats · parse.pool · parse.progress ·
    parse.unread · parse.worker · walk · web
May import: base · text
Light: yes
"""
