"""Turns files and web pages into blocks and chunks, and stores the bytes that they came from.

Refuses to know: stores, and how a document changes.

Offers: blobs · chunk · gitignore · packs · parse.conversation · parse.formats · parse.ocr ·
    parse.pool · parse.progress · parse.unread · parse.worker · skipped · walk · web
May import: base · base.text · engine.events
Light: yes
"""
