"""`python -m tools.generate [--check]`: writes what is derived from the declarations.

With `--check` it writes nothing, and its exit code is 1 if a file is out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kbproc.base.pipes import leave
from kbproc.methods.all import registry
from tools.generate import outputs

REPO = Path(__file__).parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only tell what is out of date")
    if parser.parse_args().check:
        wrong = outputs.check(registry(), REPO)
        lines = [f"{line}: run make generate" for line in wrong]
    else:
        wrong, lines = [], outputs.write(registry(), REPO)
    sys.stdout.write("\n".join(lines or ["All is as declared."]) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    leave(main())
