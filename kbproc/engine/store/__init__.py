"""One folder, one writer, many readers: the engine that appends, folds and shows; and SQL over
tables of what it shows.

Refuses to know: methods, tokens' meaning, tenants such as notes or embeddings.

Offers: decision · edited_files · folder · follow · hook_counts · hook_log · in_review · lane ·
    model · pipeline · place · plan · rebuild · snapshot · sql.query · state · store · target ·
    visible
May import: base · base.settings · engine.log · engine.events · engine.sources · engine.models ·
    engine.projections
Light: yes
"""
