"""The methods of a client; methods.pyi tells type checkers what each takes and answers.

Owns: nothing at run time, when facts.py is enough.
Refuses to know: how a call is made (calls.py).
"""

from .calls import Noun as Methods

__all__ = ["Methods"]
