"""cluster.*: one store on several machines."""
