"""Cross-encoders behind one interface: they judge how well each text answers a query."""
