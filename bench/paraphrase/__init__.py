"""Questions in other words than the texts that answer them."""
