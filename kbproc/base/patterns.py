"""Regular expressions that are compiled when they are first used.

A command starts in the time of a few compiled patterns, and uses few of them.
"""

from __future__ import annotations

import re
from typing import Any, cast


def lazy(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Returns the pattern as `re.compile` does, but compiles it with its first use."""
    return cast("re.Pattern[str]", LazyPattern(pattern, flags))


class LazyPattern:
    def __init__(self, pattern: str, flags: int) -> None:
        self._arguments = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """Returns a member of the compiled pattern; later accesses find it in the instance."""
        if name.startswith("__"):
            raise AttributeError(name)
        compiled = re.compile(*self._arguments)
        members = (member for member in dir(compiled) if not member.startswith("_"))
        vars(self).update((member, getattr(compiled, member)) for member in members)
        return getattr(compiled, name)
