"""What the log says, in the shape that questions need; any view can be thrown away.

Refuses to know: who asks, who may see, and when a view follows.

Offers: catalog.catalog · catalog.filters · catalog.queries.all · catalog.reader ·
    catalog.rows · follower · fulltext.files · fulltext.index · fulltext.search · restriction ·
    soundness · vectors.manifest · vectors.search · vectors.view · vectors.waiting
May import: base · text · log · events · models
Light: no
"""
