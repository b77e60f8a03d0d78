"""Who may ask, and what each may see, do and keep.

Refuses to know: the wire, and how a request is narrowed.

Offers: access · agent · check · folder · quotas
May import: base · events · notefiles · views · store
Light: yes
"""
