"""Views: what the log says, in the shape that questions need. Disposable."""
