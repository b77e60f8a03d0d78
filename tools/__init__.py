"""Programs for the developers of kbproc; nothing of them is installed."""
