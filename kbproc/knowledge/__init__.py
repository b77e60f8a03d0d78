"""The uses of a store: documents, agents and notes, search, sessions, history, transfer."""
