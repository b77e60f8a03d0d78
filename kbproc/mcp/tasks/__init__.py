"""Long work that goes on once its request is answered: the protocol's extension for tasks."""
