"""The settings of programs that start servers."""
