"""Who may ask, what each may see, do and keep; and the notes that agents keep.

Refuses to know: the wire, and how a request is narrowed.

Offers: access · agent · check · folder · notes.background · notes.change · notes.diff ·
    notes.note · notes.notebook · notes.plan · notes.revision · notes.sync · quotas
May import: base · events · notefiles · views · store · documents
Light: yes
"""
