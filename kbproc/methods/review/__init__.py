"""review.*: entries that wait for an approval."""
