"""One folder, one writer, many readers: the engine that appends, folds and shows.

Refuses to know: methods, tokens' meaning, tenants such as notes or embeddings.

Offers: decision · folder · follow · group · lane · overlay · pipeline · place · plan · rebuild ·
    snapshot · state · store · visible
May import: base · settings · log · events · sources · models · views
Light: yes
"""
