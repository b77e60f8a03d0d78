"""Looking back, going back, forgetting.

Refuses to know: params and the wire.

Offers: chain · compact · feed · forgotten · note_files · purge · restore · revert.links ·
    revert.records · revert.undoing · state · timeline
May import: base · settings · log · events · views · store · embedding · documents ·
    agents
Light: yes
"""
