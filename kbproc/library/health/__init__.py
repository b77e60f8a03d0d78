"""What is well, and mending what is not.

It knows neither who asks nor what else is open; each finding's hint says what a person can do.
"""
