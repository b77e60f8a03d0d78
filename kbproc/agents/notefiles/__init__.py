"""A folder of Markdown that people edit too, and no text in it is lost.

It imports `base` alone, and knows neither agents nor the log, nor what a note is to it.
"""
