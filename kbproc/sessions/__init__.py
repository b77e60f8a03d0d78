"""Conversations, and answers as streams.

Refuses to know: the wire, and which process owns the store.

Offers: asking · encoders.ag_ui · encoders.ai_sdk · making · reading · retrieval · session
May import: base · text · events · models · views · store · documents · search
Light: yes
"""
