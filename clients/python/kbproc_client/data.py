"""What methods take and answer: types for type checkers, which data.pyi tells. All are dicts.

Owns: that their names can be imported at run time, too, at no cost.
Refuses to know: how anything is asked.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name[:1].isupper():
        return dict[str, Any]
    raise AttributeError(name)
