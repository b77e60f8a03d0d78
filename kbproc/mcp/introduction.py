"""The client's introduction: its name, and the folders that it works in.

Owns: reading both from the client's first requests, and how long the store waits for them.
Refuses to know: what the name and the folders are used for (serve.py).
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbproc.base.paths import from_uri
from kbproc.base.values import FORBIDDEN_IN_NAMES
from kbproc.mcp import protocol
from kbproc.mcp.session import Request, Session

_LONGEST_NAME = 64
# A client that declares roots answers at once; one that does not answer must not lose its tools.
_ROOTS_SECONDS = 2.0
_LOOK_SECONDS = 0.1


class Introduction:
    """One client's introduction; `name` is None for a client that gives none.

    `roots`: folders that exist here, in the client's order.
    """

    def __init__(self, *, wants_roots: bool) -> None:
        self.name: str | None = None
        self.roots: tuple[Path, ...] = ()
        self._wants_roots = wants_roots
        self._settled = threading.Event()
        self._is_met = False
        self._deadline = float("inf")

    def meet(self, request: Request) -> None:
        """Takes the name from `initialize`, or from the first request of the newer era."""
        if self._is_met:
            return
        self._is_met = True
        info = request.meta.get(protocol.CLIENT) or request.params.get("clientInfo")
        self.name = name_in(info)
        if request.is_modern or not self._wants_roots or not _has_roots(request.session):
            self._settled.set()
        else:
            self._deadline = time.monotonic() + _ROOTS_SECONDS

    def initialized(self, session: Session) -> None:
        """Asks for the roots; a client may be asked for nothing before it is initialized."""
        if self._is_met and not self._settled.is_set():
            session.ask("roots/list", {}, self._take_roots)

    def _take_roots(self, answer: dict[str, Any]) -> None:
        roots = answer.get("roots")
        paths = [_folder(root) for root in roots] if isinstance(roots, list) else []
        self.roots = tuple(path for path in paths if path is not None)
        self._settled.set()

    def end(self) -> None:
        """The client has gone, and nothing more will come."""
        self._settled.set()

    def wait(self, is_ending: Callable[[], bool]) -> None:
        """Returns once the client has introduced itself, or will not."""
        while not self._settled.wait(_LOOK_SECONDS):
            if is_ending() or time.monotonic() > self._deadline:
                return


def _has_roots(session: Session) -> bool:
    return isinstance(session.capabilities.get("roots"), dict)


def name_in(info: Any) -> str | None:
    """Returns the name as the log can hold it; None for an introduction without one."""
    name = info.get("name") if isinstance(info, dict) else None
    if not isinstance(name, str):
        return None
    plain = " ".join(re.sub(FORBIDDEN_IN_NAMES, " ", name).split())
    return plain[:_LONGEST_NAME].strip() or None


def _folder(root: Any) -> Path | None:
    """Returns the root's folder; None for one that is not on this machine."""
    uri = root.get("uri") if isinstance(root, dict) else None
    if not isinstance(uri, str):
        return None
    try:
        path = Path(from_uri(uri))
        return path if path.is_absolute() and os.path.isdir(path) else None  # noqa: PTH112
    except ValueError:
        return None
