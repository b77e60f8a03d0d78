"""An answer's stream in the words of other protocols."""
