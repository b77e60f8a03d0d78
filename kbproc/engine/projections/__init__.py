"""Builds the views of the log that reads are answered from; each can be deleted and built again.

Refuses to know: who asks, what a caller may see, and when a view follows the log.

Offers: catalog.catalog · catalog.changes · catalog.checks · catalog.files · catalog.filters ·
    catalog.instruction · catalog.lists · catalog.queries · catalog.reader · catalog.rows ·
    catalog.tables · follower · fulltext.files · fulltext.index · fulltext.search · restriction ·
    soundness · vectors.manifest · vectors.plane · vectors.search · vectors.view · vectors.waiting
May import: base · base.text · engine.log · engine.events · engine.models
Light: no
"""
