"""Looking back, going back, forgetting.

Refuses to know: params and the wire.

Offers: feed · purge · restore · revert.links · revert.revert · revert.undoing · timeline
May import: base · settings · log · events · views · store · embedding · documents · sql
Light: yes
"""
