"""Notes of agents: folder and log kept in step."""
