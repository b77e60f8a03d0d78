"""Reads the escapes of strings in data files, so that a word is found that a file spells in ASCII.

Lines stay as they are: an escape of a line break or another control becomes a space.
"""

from __future__ import annotations

import re

_SPELLED = frozenset({".properties"})  # Java's, in which escapes stand outside of quotes
_QUOTING = frozenset({".json", ".jsonc", ".json5", ".yaml", ".yml", ".toml"})
# A string, to the end of its line where it has none: so no quote is looked at twice.
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*+"?')
_ESCAPE = re.compile(
    r"\\(?:u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|x(?P<x>[0-9a-fA-F]{2})|(?P<one>.))"
)
_ONE = {'"': '"', "/": "/", "\\": "\\", **dict.fromkeys("bfnrt0aevN_LP", " ")}
_BREAKS = frozenset((*range(0x20), 0x7F, 0x85, 0x2028, 0x2029))


def unescaped(text: str, suffix: str) -> str:
    r"""Returns the text with the escapes that files of this kind have: "Z\u00fcrich" is "Zürich".

    Halves of a surrogate pair are left to `clean_text`.
    """
    if "\\" not in text:
        return text
    if suffix in _SPELLED:
        return _ESCAPE.sub(_character, text)
    if suffix in _QUOTING:
        return _QUOTED.sub(lambda string: _ESCAPE.sub(_character, string[0]), text)
    return text


def _character(escape: re.Match[str]) -> str:
    if one := escape["one"]:
        return _ONE.get(one, escape[0])
    code = int(escape["u"] or escape["U"] or escape["x"], 16)
    return " " if code in _BREAKS else chr(code) if code <= 0x10FFFF else escape[0]
