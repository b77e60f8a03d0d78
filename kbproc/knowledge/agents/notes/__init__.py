"""Notes of agents: keeps folder and log in step."""
