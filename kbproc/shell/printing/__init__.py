"""What a command prints: the formats, the terminal, and answers as text for people."""
