"""What `kbproc serve` was asked for.

Owns: the flags of `serve` and what they may say.
Refuses to know: who owns the store, and how a client is served. Light.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.paths import NOWHERE, absolute
from kbproc.settings.config import MAX_IN_FLIGHT, MAX_LINE_BYTES, SCOPES, Config

if TYPE_CHECKING:
    from kbproc.sharing.reach import Hello

PROTOCOLS = ("1",)


class Serving(Struct, frozen=True, kw_only=True):
    """The settings and the flags of one `kbproc serve`, as a person gave them.

    `surface`: what the client sees of kbproc. `model`: the model of a store that is new; a person
    can't choose it here. `thin`: this process never opens the store. `root`: relative paths start
    there, too; NOWHERE allows no files. `is_self_named`: the actor is the client's own name, which
    means no agent.
    """

    config: Config
    protocol: str | None = None
    root: str | None = None
    scopes: str | None = None
    max_line_bytes: int = MAX_LINE_BYTES
    max_in_flight: int = MAX_IN_FLIGHT
    allow_private_addresses: bool = False
    model: dict[str, Any] | None = None
    surface: str = "serve"
    thin: bool = False
    is_self_named: bool = False

    def check(self) -> None:
        """Raises input.invalid_params for what can't be served."""
        _check_protocol(self.protocol)
        parse_scopes(self.scopes)
        self._root()

    def _root(self) -> Path | None:
        """Raises input.invalid_params."""
        return None if self.root is None else absolute(self.root, field="--root")

    def hello(self, host: Host) -> Hello:
        """What the owner of the store must know of the client."""
        from kbproc.sharing import reach  # after the first line: it takes sockets

        here, named = host.cwd(), self._root()
        cwd = here if named in {None, NOWHERE} else named
        root = os.path.realpath(named or here)
        return replace(
            reach.hello(self.config, cwd),
            surface=self.surface,
            scopes=sorted(parse_scopes(self.scopes)),
            scoped=self.scopes is not None,
            is_self_named=self.is_self_named,
            root=root,
            odd_root=reach.odd_bytes(Path(root)),
            max_line_bytes=self.max_line_bytes,
            max_in_flight=self.max_in_flight,
            allow_private_addresses=self.allow_private_addresses,
        )


def with_more(text: str | None, usual: Iterable[str]) -> str | None:
    """The scopes that are named, or `usual` and those behind a +: +admin adds one to them.

    Raises input.invalid_params where only some have a +.
    """
    names = [part.strip() for part in (text or "").split(",") if part.strip()]
    more = [name.removeprefix("+") for name in names if name.startswith("+")]
    if not more:
        return text
    if len(more) < len(names):
        raise KbprocError(
            "input.invalid_params",
            "--scopes names scopes, or adds some to the usual ones, not both.",
            field="--scopes",
            hint=f"Write a + before each: {','.join('+' + name.lstrip('+') for name in names)}.",
        )
    return ",".join(sorted({*usual, *more}))


def parse_scopes(text: str | None, valid: Iterable[str] = SCOPES) -> frozenset[str]:
    """All if `text` is None; raises input.invalid_params for scopes that don't exist."""
    known = tuple(valid)
    text = with_more(text, known)
    if text is None:
        return frozenset(known)
    wanted = {scope.strip() for scope in text.split(",") if scope.strip()}
    if unknown := sorted(wanted.difference(known)):
        raise KbprocError(
            "input.invalid_params",
            f"There is no scope {unknown[0]!r}.",
            field="--scopes",
            valid_values=known,
        )
    return frozenset(wanted)


def _check_protocol(protocol: str | None) -> None:
    if protocol is not None and protocol not in PROTOCOLS:
        raise KbprocError(
            "input.invalid_params",
            f"Protocol {protocol!r} is not spoken here.",
            field="--protocol",
            valid_values=PROTOCOLS,
            hint=f"Ask for {PROTOCOLS[-1]}, or use a kbproc version that speaks {protocol}.",
        )
