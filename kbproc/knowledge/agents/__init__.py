"""Who may ask, what each may see, do and keep; and the notes that agents keep, as Markdown.

Refuses to know: the wire, and how a request is narrowed.

Offers: access · agent · check · folder · notefiles.edit · notefiles.file · notefiles.folder ·
    notes.background · notes.change · notes.diff · notes.note · notes.notebook · notes.plan ·
    notes.revision · notes.sync · quotas
May import: base · events · views · store · documents
Light: yes
"""
