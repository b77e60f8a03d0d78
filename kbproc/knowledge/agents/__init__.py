"""Who may ask, what each may see, do and keep; and the notes that agents keep, as Markdown.

Refuses to know: the wire, and how a request is narrowed.

Offers: access · agent · check · folder · notes.background · notes.diff · notes.edit · notes.files ·
    notes.note · notes.notebook · notes.rules · notes.sync · quotas
May import: base · engine.events · engine.projections · engine.store · knowledge.documents
Light: yes
"""
