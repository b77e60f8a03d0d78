"""Compares kbproc with its alternatives: one corpus, the same vectors, one run.

`python -m bench.peers --help`. Every peer runs in an environment of its own, with pinned versions.
"""
