"""The methods of a client; methods.pyi declares their params and results for type checkers."""

from .calls import Noun as Methods

__all__ = ["Methods"]
