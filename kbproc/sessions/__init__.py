"""Conversations, and answers as streams.

Refuses to know: the wire, and which process owns the store.

Offers: asking · citations · heard · live · making · reading · retrieval · session
May import: base · text · events · models · views · store · documents · search
Light: yes
"""
