"""chats.*: conversations of agents and chats."""
