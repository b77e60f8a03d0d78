"""The kit's minimal server with one fault: `python -m tests.kit.minimal RULE STORE`.

Without a rule it has no fault: `-` has all parts, `core` that one alone. tests/kit/template.py
forks it, so that a start takes milliseconds.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path

from tests.kit.contract_faults import FAULTS, LIARS

EXAMPLES = Path(__file__).parents[2] / "contract" / "examples"
NAMES = ("wire", "server", "more")
_SOURCES = {name: (EXAMPLES / f"{name}.py").read_text() for name in NAMES}


def sources(rule: str) -> dict[str, str]:
    """Returns the modules' texts with the rule's fault in its place; "-" is no fault."""
    texts = dict(_SOURCES)
    if rule in {"-", "core"}:
        return {name: text for name, text in texts.items() if rule == "-" or name != "more"}
    for old, new in {**FAULTS, **LIARS}[rule]["places"]:
        holders = [name for name in NAMES if old in texts[name]]
        assert len(holders) == 1, f"{rule}: {old!r} stands in {holders}"
        assert texts[holders[0]].count(old) == 1, f"{rule}: {old!r} stands there several times"
        texts[holders[0]] = texts[holders[0]].replace(old, new)
    return texts


def main() -> int:
    rule, *arguments = sys.argv[1:]
    sys.argv = ["more.py", *arguments]
    for name, text in sources(rule).items():
        path = str(EXAMPLES / f"{name}.py")
        module = sys.modules[name] = types.ModuleType(name)
        module.__file__ = path
        exec(compile(text, path, "exec"), vars(module))
    code: int = sys.modules["wire"].main()
    return code


if __name__ == "__main__":
    sys.exit(main())
