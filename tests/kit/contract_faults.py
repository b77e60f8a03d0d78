"""A fault for each rule of the contract, and servers with several: tests/contract/faults.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

PATH = Path(__file__).parents[1] / "contract" / "faults.toml"
# Rule → what the server does (`does`) and the `places`: a piece of its text and what replaces it.
FAULTS: dict[str, dict[str, Any]] = tomllib.loads(PATH.read_text())
# Name → the places, and the rules that the kit has to find broken (`found`).
LIARS: dict[str, dict[str, Any]] = FAULTS.pop("liar")
