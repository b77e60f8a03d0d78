"""Checks a store and repairs it.

It depends neither on callers nor on other open parts; each finding's hint says what a person can
do.
"""
