"""kbproc: a knowledge base that agents run as a coprocess."""

__version__ = "0.1.0"
