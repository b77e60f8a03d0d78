"""Puts kbproc's client into what is built: from the checkout, or from what an sdist holds of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Client(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Folders stay out: contract/ judges implementations, and comes with kbproc."""
        packed = Path(self.root) / "kbproc_client"
        checkout = Path(self.root).parents[1] / "kbproc" / "client"
        source = packed if packed.is_dir() else checkout
        files = [path for path in source.iterdir() if path.is_file()]
        build_data["force_include"] |= {str(path): f"kbproc_client/{path.name}" for path in files}
