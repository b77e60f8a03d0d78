"""Runs `kbproc open`: starts the page's server, and behind it the same `serve` as for any client.

So owning the store, attaching, takeover, tokens and scopes are done there, and not here. The
command ends by a signal, such as Ctrl-C, and the page with it.
"""

from __future__ import annotations

import contextlib
import html
import sys
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct

from kbproc import __version__
from kbproc.base.durable import write_new
from kbproc.base.errors import KbprocError
from kbproc.base.host import Host, environment
from kbproc.base.paths import NOWHERE
from kbproc.base.settings.config import Config
from kbproc.base.threads import start_thread
from kbproc.surfaces.page.access import Access
from kbproc.surfaces.page.bridge import Bridge
from kbproc.surfaces.page.server import PageServer
from kbproc.surfaces.sharing import serve
from kbproc.surfaces.sharing.inside import InsideServe
from kbproc.surfaces.wire.lines import Signals
from kbproc.surfaces.wire.logs import log_to_stderr

# Variables that name a screen, on which a person sees a browser. macOS needs none.
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


class PageOptions(Struct, frozen=True, kw_only=True):
    """The settings and flags of one `kbproc open`. `port`: 0 takes a free one."""

    config: Config
    port: int = 0
    read_only: bool = False
    starts_browser: bool = True
    scopes: str | None = None


def run(opening: PageOptions, show: Callable[[str], object]) -> int:
    """Serves the page until a signal comes; returns the exit code.

    `show` gets the page's address. Raises store.io if the port is in use.
    """
    host = Host()
    config = opening.config
    log_to_stderr(config.log_level, host)
    server = _server(opening.port)
    access = Access(host, server.port)
    inside_serve = InsideServe()
    bridge = Bridge(inside_serve.client, read_only=opening.read_only)
    signals = Signals()
    signals.install()  # before the address is shown, because a person may then end the command
    bridge.start()
    about = {
        "store": str(config.store),
        "actor": config.actor,
        "version": host.versions({"kbproc": __version__})["kbproc"],
        "read_only": opening.read_only,
    }
    server.begin(access, bridge, about)
    show(access.address)
    with _browser(opening, access, host):
        code = inside_serve.run(partial(serve.run, _serving(opening), host=host, signals=signals))
    server.shutdown()
    bridge.close()
    inside_serve.client.close()
    return code


def _server(port: int) -> PageServer:
    try:
        return PageServer(port)
    except OSError as error:
        raise KbprocError(
            "store.io",
            f"The page can't listen at port {port}: {error.strerror}.",
            field="--port",
            hint="Leave --port out: a free one is taken.",
        ) from None


def _serving(opening: PageOptions) -> serve.Serving:
    return serve.Serving(
        config=opening.config,
        root=str(NOWHERE),
        scopes=opening.scopes,
        surface="page",
        thin=True,
    )


# ----------------------------------------------------------------------------- the browser


def has_screen(env: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Returns true where a person sees the browser that this process starts."""
    return platform == "darwin" or any(env.get(name) for name in _SCREENS)


@contextlib.contextmanager
def _browser(opening: PageOptions, access: Access, host: Host) -> Iterator[None]:
    """Shows the page in the person's browser, where there is one.

    The browser gets the path of a private file that leads to the page, because all users of the
    machine can read its arguments.
    """
    if not opening.starts_browser or not has_screen(environment()):
        yield
        return
    path = opening.config.runtime / f"page-{host.pid()}.html"
    try:
        with contextlib.suppress(OSError):  # then a person opens the address that is printed
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # a killed process may have left one
            write_new(str(path), _leading_to(access.address))
            start_thread(partial(_start, path), "browser")
        yield
    finally:
        path.unlink(missing_ok=True)


def _start(path: Path) -> None:
    with contextlib.suppress(OSError, webbrowser.Error):
        webbrowser.open(path.as_uri())


def _leading_to(address: str) -> bytes:
    """Returns a page that opens the address."""
    return (
        '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0;url={html.escape(address)}">'
    ).encode()
