"""`kbproc mcp`: a client of the protocol on stdin and stdout, the wire of kbproc behind it.

Owns: the pipes between the two, and the order of starting and of ending.
Refuses to know: what is said on either side.

Behind the front stands the same `serve` that any client has, over two pipes of this process: what
owning a store, attaching, taking over, tokens and cancelling are is there, and here is none of it.
Light: what a client asks first is answered before the store is looked for.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kbproc import __version__
from kbproc.base.host import Host
from kbproc.base.paths import NOWHERE
from kbproc.mcp.approval import Shell
from kbproc.mcp.front import Front
from kbproc.mcp.inside import Inside
from kbproc.mcp.introduction import Introduction
from kbproc.mcp.once import Once, client_of
from kbproc.mcp.protocol import INVALID_REQUEST, Refusal, error
from kbproc.mcp.tasks.handle import Handles
from kbproc.mcp.toolbox import Toolbox
from kbproc.settings.config import MAX_LINE_BYTES, SCOPES, Config
from kbproc.wire.lines import Lines, Signals
from kbproc.wire.logs import log_to_stderr
from kbproc.wire.outbox import Outbox

_logger = logging.getLogger(__name__)
# Only who names them has them: what destroys is for a person to allow.
WITHHELD = frozenset({"admin", "knowledge:write_others"})
_END_SECONDS = 2.0


class Offering(Struct, frozen=True, kw_only=True):
    """The settings and flags of one `kbproc mcp`, as a person gave them.

    `tools`: sets and names; None is `notes` for an agent, else `default`. `model`: the model of a
    store that is new; a person can't choose it here. `thin`: another process opens the store.
    """

    config: Config
    tools: str | None = None
    root: str | None = None
    scopes: str | None = None
    allow_private_addresses: bool = False
    model: dict[str, Any] | None = None
    thin: bool = True

    @property
    def is_bound(self) -> bool:
        """To an agent, which the store may know to be allowed less."""
        return self.config.agent_named_by is not None

    def named(self, introduction: Introduction) -> Config:
        """The settings with the client's name as the actor, unless something else names one."""
        if introduction.name is None or "agent" in self.config.origins:
            return self.config
        return replace(self.config, actor=introduction.name)

    @property
    def asked(self) -> str:
        """The sets and tools."""
        return self.tools or ("notes" if self.is_bound else "default")

    @property
    def given(self) -> str | None:
        """The scopes for `serve`; None leaves them to the agent. Raises input.invalid_params."""
        from kbproc.sharing.serving import with_more

        usual = sorted(set(SCOPES) - WITHHELD)
        if self.scopes is not None or self.is_bound:
            return with_more(self.scopes, usual)
        return ",".join(usual)


def run(offering: Offering, pipes: tuple[int, int], *, host: Host | None = None) -> int:
    """Serves until stdin ends or a signal comes; returns the exit code.

    Raises input.invalid_params for tools and scopes that don't exist.
    """
    host = host or Host()
    toolbox = Toolbox(offering.asked)
    reader, writer = pipes
    parent = os.getppid()
    outbox = Outbox(writer)
    to_store, from_store = os.pipe(), os.pipe()
    inside = Inside(from_store[0], to_store[1])
    introduction = Introduction(wants_roots=offering.root is None)
    front = Front(
        toolbox,
        inside,
        *_kept(offering, introduction, parent),
        host=host,
        scopes=_scopes(offering),
        send=outbox.send,
        delivered=lambda: outbox.flush(0),
        version=host.versions({"kbproc": __version__})["kbproc"],
        introduction=introduction,
        shell=_shell(offering),
    )
    _warn(toolbox, offering, host)
    signals = Signals()
    signals.install()  # before the first answer: who has it may end this process
    lines = Lines(reader, MAX_LINE_BYTES, Signals(), answers=writer, parent=parent)
    listening = (lines, front, inside, outbox, introduction)
    threading.Thread(target=_listen, args=listening, name="client", daemon=True).start()
    back = threading.Thread(target=inside.run, name="inside", daemon=True)
    back.start()
    introduction.wait(lambda: signals.pending is not None)
    threading.Thread(target=inside.open, name="open", daemon=True).start()
    code = _serve(offering, introduction, (to_store[0], from_store[1]), host, signals)
    os.close(from_store[1])
    back.join(_END_SECONDS)
    outbox.flush(_END_SECONDS)
    front.end()
    outbox.close()
    return code


def _scopes(offering: Offering) -> frozenset[str] | None:
    """Raises input.invalid_params."""
    from kbproc.sharing.serving import parse_scopes

    return None if offering.is_bound else parse_scopes(offering.given)


def _shell(offering: Offering) -> Shell:
    config = offering.config
    agent = config.actor if offering.is_bound else None
    return Shell(store=os.path.abspath(config.store), agent=agent)  # noqa: PTH100  it follows no links


def _warn(toolbox: Toolbox, offering: Offering, host: Host) -> None:
    """A person who adds a scope may take all others away by that."""
    scopes = _scopes(offering)
    lacking = None if scopes is None else toolbox.lacks_search(scopes)
    if lacking is not None:
        log_to_stderr(offering.config.log_level, host)
        _logger.warning(
            "No search is offered: --scopes %s lacks %s. To add scopes to the usual ones, write a "
            "+ before each, such as --scopes +admin.",
            offering.scopes,
            lacking,
        )


def _kept(offering: Offering, introduction: Introduction, parent: int) -> tuple[Once, Handles]:
    folder = offering.config.runtime / "mcp"

    def where() -> str:
        config = offering.named(introduction)
        return f"{os.path.realpath(config.store)}\n{config.actor}"

    return Once(folder, client_of(parent), where), Handles(folder, where)


def _listen(
    lines: Lines, front: Front, inside: Inside, outbox: Outbox, introduction: Introduction
) -> None:
    """Until the client has sent its last line, or has gone."""
    try:
        for line in lines:
            outbox.wait_until_not_full(lines.ended)
            if isinstance(line, bytes):
                front.receive(line)
            else:
                said = f"A line has more than {MAX_LINE_BYTES} bytes and was skipped."
                outbox.send(error(None, Refusal(INVALID_REQUEST, said)))
    finally:
        introduction.end()
        inside.end()


def _root(offering: Offering, introduction: Introduction, host: Host) -> str | None:
    """The folder that a flag or the client names, else the working folder; but the home, or a
    folder around it, is where programs with windows start servers, and nobody means it by that.
    """
    if offering.root is not None:
        return offering.root
    if introduction.roots:
        return str(introduction.roots[0])
    here = os.path.realpath(host.cwd())
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111  it never fails
    return str(NOWHERE) if here == "/" or Path(home).is_relative_to(here) else None


def _serve(
    offering: Offering,
    introduction: Introduction,
    pipes: tuple[int, int],
    host: Host,
    signals: Signals,
) -> int:
    from kbproc.sharing import serve
    from kbproc.sharing.serving import Serving

    config = offering.named(introduction)
    serving = Serving(
        config=config,
        is_self_named=config is not offering.config,
        root=_root(offering, introduction, host),
        scopes=offering.given,
        surface="mcp",
        allow_private_addresses=offering.allow_private_addresses,
        model=offering.model,
        thin=offering.thin,
    )
    return serve.run(serving, pipes, host=host, signals=signals)
