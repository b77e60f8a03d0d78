"""For the developers of kbproc, inside its repository."""
