"""Types of params and results at run time, where all are dicts; data.pyi declares them.

So their names can be imported at no cost.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name[:1].isupper():
        return dict[str, Any]
    raise AttributeError(name)
