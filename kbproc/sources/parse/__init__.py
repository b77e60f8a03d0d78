"""From bytes of one format to blocks, a file a format, in limited processes."""
