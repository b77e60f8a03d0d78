"""Questions whose words differ from those of the texts that answer them."""
