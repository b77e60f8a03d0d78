"""One folder, one writer, many readers: the engine that appends, folds and shows; and SQL over a
copy of what it shows.

Refuses to know: methods, tokens' meaning, tenants such as notes or embeddings.

Offers: decision · folder · follow · group · lane · overlay · pipeline · place · plan · rebuild ·
    snapshot · sql.query · state · store · visible
May import: base · settings · log · events · sources · models · views
Light: yes
"""
