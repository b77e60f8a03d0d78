"""`kbproc eval`: how well searches find what answers, in a collection of one's own."""
