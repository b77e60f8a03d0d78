"""Fetching: what may be asked, and how much, and for how long."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources import web
from kbproc.engine.sources.web import FetchedPage, fetch_url
from tests.conftest import OpenSession
from tests.kit.patience import PATIENCE, PAUSE
from tests.kit.site import Site

PAGE = b"<html><head><title>Wiki</title></head><body><p>Deploy on Friday.</p></body></html>"


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


def get(url: str, **more: Any) -> FetchedPage:
    options: dict[str, Any] = {"max_bytes": 10_000, "timeout_s": PATIENCE, "allow_private": True}
    return fetch_url(url, **{**options, **more})


def refused(type: str, url: str, **more: Any) -> KbprocError:
    with pytest.raises(KbprocError) as caught:
        get(url, **more)
    assert caught.value.type == type, caught.value.message
    return caught.value


# ------------------------------------------------------------------- what comes back


def test_a_page(site: Site) -> None:
    page = get(site.page("/wiki.html", PAGE))
    assert (page.data, page.type, page.name) == (PAGE, "html", "wiki.html")


@pytest.mark.parametrize(
    ("path", "type", "body", "expected"),
    [
        ("/a", "text/html; charset=utf-8", PAGE, "html"),
        ("/a", "text/plain", b"Words.", "text"),
        ("/a.md", "text/plain", b"# Words", "markdown"),
        ("/a", "application/pdf", b"%PDF-1.4", "pdf"),
        ("/a.py", None, b"x = 1\n", "code"),
        ("/a", None, PAGE, "html"),
    ],
)
def test_the_type(site: Site, path: str, type: str | None, body: bytes, expected: str) -> None:
    assert get(site.page(path, body, type=type)).type == expected


def test_what_no_parser_reads(site: Site) -> None:
    url = site.page("/a.png", b"\x89PNG\r\n\x1a\n" + bytes(50), type="image/png")
    refused("input.unsupported_type", url)


@pytest.mark.parametrize("status", [204, 304, 403, 404, 500, 503])
def test_other_answers_are_failures(site: Site, status: int) -> None:
    error = refused("network.failed", site.page("/a", status=status))
    assert error.row.retryable is True


def test_nobody_there() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        refused("network.failed", f"http://127.0.0.1:{listener.getsockname()[1]}/")


def test_a_server_that_talks_nonsense(site: Site) -> None:
    site.pages["/a"] = lambda handler: handler.wfile.write(b"\x00\xff nonsense\r\n\r\n")
    refused("network.failed", site.url + "/a")


# ------------------------------------------------------------------------- redirects


def test_redirects_are_followed(site: Site) -> None:
    site.page("/end", PAGE)
    site.page("/middle", status=302, Location="end")
    url = site.page("/start", status=301, Location=f"{site.url}/middle")
    page = get(url)
    assert (page.data, page.url) == (PAGE, f"{site.url}/end")


def test_a_circle_of_redirects_ends(site: Site) -> None:
    refused("network.failed", site.page("/loop", status=302, Location="/loop"))
    assert len(site.asked) == web.MAX_REDIRECTS + 1


@pytest.mark.parametrize("headers", [{}, {"Location": ""}, {"Location": "http://[bad"}])
def test_redirects_to_nowhere(site: Site, headers: dict[str, str]) -> None:
    url = site.page("/a", b"", status=302, type=None, **headers)
    with pytest.raises(KbprocError) as caught:
        get(url)
    assert caught.value.type in {"network.failed", "network.blocked"}


@pytest.mark.parametrize(
    "target",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://x/",
        "javascript:alert(1)",
        "//user:pw@127.0.0.1/",
    ],
)
def test_redirects_to_other_schemes_lead_nowhere(site: Site, target: str) -> None:
    url = site.page("/a", status=302, Location=target)
    with pytest.raises(KbprocError) as caught:
        get(url)
    assert caught.value.type in {"network.failed", "network.blocked"}
    assert len(site.asked) == 1


def test_a_redirect_to_a_private_address_is_blocked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first address counts as public here; where it leads is judged anew."""
    secret = site.page("/secret", PAGE)
    site.page("/public", status=302, Location=secret.replace("127.0.0.1", "127.0.0.2"))
    monkeypatch.setattr(web, "is_public", lambda address: address == "127.0.0.1")
    refused("network.blocked", site.url + "/public", allow_private=False)
    assert [path for path, _ in site.asked] == ["/public"]


def test_an_approved_address_opens_no_other(site: Site) -> None:
    secret = site.page("/secret", PAGE)
    site.page("/public", status=302, Location=secret.replace("127.0.0.1", "127.0.0.2"))
    approved = {"127.0.0.1"}
    assert get(secret, allow_private=False, approved=approved).data == PAGE
    error = refused("network.blocked", site.url + "/public", allow_private=False, approved=approved)
    assert error.detail == {"address": "127.0.0.2", "redirected": True}
    assert [path for path, _ in site.asked] == ["/secret", "/public"]


# ------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[fd00::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:10.0.0.1]",
        "[2002:7f00:1::]",
        "[64:ff9b::7f00:1]",
        "[::127.0.0.1]",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "224.0.0.1",
        "[ff02::1]",
        "255.255.255.255",
        "240.0.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "[2001:db8::1]",
    ],
)
def test_private_addresses_in_every_dress_are_blocked(host: str) -> None:
    with pytest.raises(KbprocError) as caught:
        get(f"http://{host}/", allow_private=False)
    assert caught.value.type == "network.blocked", caught.value.message
    assert caught.value.field == "$.params.url"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/a",
        "file:///etc/passwd",
        "http://",
        "http:///a",
        "http://a:pw@example.org/",
        "http://[::1",
        "http://a:99999/",
        "nonsense",
        "data:text/html,x",
    ],
)
def test_addresses_that_are_not_fetched(url: str) -> None:
    refused("network.blocked", url)


@pytest.mark.parametrize(
    "url",
    [
        "http://a:secret@example.org/",
        "http://a:secret@127.0.0.1/",
        "http://a:secret@[::1/x",
        "http://a:secret@h:99999/",
        "ftp://a:secret@h/",
        "//a:secret@h/",
        "http:/\\a:secret@h/",
        "http:a:secret@h/",
        "a:secret@h",
        "http://a:se/cret@h/",
        "http:///a:secret@h/",
    ],
)
def test_no_message_tells_a_password(url: str) -> None:
    with pytest.raises(KbprocError) as caught:
        fetch_url(url, max_bytes=9, timeout_s=PATIENCE, allow_private=False)
    assert caught.value.type == "network.blocked"
    assert "cret" not in f"{caught.value.message}{caught.value.hint}{caught.value.detail}"


def test_hints_fit_the_reason() -> None:
    hints = {}
    for url in ("file:///etc/passwd", "http://h:99999/", "http://a:b@h/", "http://127.0.0.1/"):
        with pytest.raises(KbprocError) as caught:
            fetch_url(url, max_bytes=9, timeout_s=PATIENCE, allow_private=False)
        hints[url] = caught.value.hint
    assert len(set(hints.values())) == 4
    assert [url for url, hint in hints.items() if "private" in hint] == ["http://127.0.0.1/"]
    assert caught.value.message.count("127.0.0.1") == 2, "once in the address, once as the reason"


def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, [])
    refused("network.failed", "http://no-such-host.test/")
    refused("network.failed", f"http://{'a' * 70}.example/")


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Has the name server give these answers, one after another; returns the names of its queries.

    An answer without an address means that there is no such name.
    """
    queries: list[str] = []
    real = socket.getaddrinfo
    remaining = list(answers)

    def getaddrinfo(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if not name.endswith(".test"):
            return real(host, port, *more, **named)
        queries.append(name)
        addresses = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port or 80)) for ip in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return queries


def test_only_the_address_that_was_judged_is_connected_to(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that answers otherwise the second time leads nowhere else."""
    site.page("/", PAGE)
    queries = resolving(monkeypatch, ["127.0.0.1"], ["127.0.0.9"])
    monkeypatch.setattr(web, "is_public", lambda address: address == "127.0.0.1")
    page = get(f"http://rebind.test:{site.port}/", allow_private=False)
    assert page.data == PAGE
    assert queries == ["rebind.test"], "asked once"
    assert site.asked == [("/", f"rebind.test:{site.port}")]


def test_the_server_is_told_a_name_as_the_web_writes_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is in ASCII (RFC 5891), because the header `Host` takes nothing else."""
    site.page("/", PAGE)
    resolving(monkeypatch, ["127.0.0.1"])
    assert get(f"http://b\xfccher.test:{site.port}/").data == PAGE
    assert site.asked == [("/", f"xn--bcher-kva.test:{site.port}")]


def test_an_address_of_ipv6() -> None:
    """The address stands in brackets (RFC 3986), in the header `Host`, too."""
    try:
        site = Site("::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    try:
        assert get(site.page("/", PAGE)).data == PAGE
        assert site.asked == [("/", site.host)]
    finally:
        site.close()


def test_of_several_addresses_a_private_one_is_never_taken(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.page("/", PAGE)
    resolving(monkeypatch, ["127.0.0.8", "127.0.0.1"])
    monkeypatch.setattr(web, "is_public", lambda address: address == "127.0.0.1")
    assert get(f"http://both.test:{site.port}/", allow_private=False).data == PAGE
    resolving(monkeypatch, ["127.0.0.8"])
    refused("network.blocked", f"http://both.test:{site.port}/", allow_private=False)


def test_no_proxy_of_the_environment_is_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert get(site.page("/a", PAGE)).data == PAGE


# ------------------------------------------------------------------- size and time


def test_a_page_that_is_too_large(site: Site) -> None:
    assert len(get(site.page("/a", b"x" * 1000, type="text/plain"), max_bytes=1000).data) == 1000
    error = refused("input.too_large", site.page("/b", b"x" * 1001), max_bytes=1000)
    assert error.field == "$.params.max_bytes"


def test_an_endless_page(site: Site) -> None:
    def endless(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(b"x" * 10_000)

    site.pages["/a"] = endless
    refused("input.too_large", site.url + "/a", max_bytes=100_000)


def test_a_page_that_unpacks_to_too_much(site: Site) -> None:
    bomb = gzip.compress(bytes(1_000_000))
    url = site.page("/a", bomb, Content_Encoding="gzip")
    assert len(bomb) < 10_000
    refused("input.too_large", url)


Begin = Callable[[Any], None]


def headers(handler: Any) -> None:
    handler.send_response(200)
    handler.end_headers()


def half_a_header(handler: Any) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")


def for_ever(site: Site, begin: Begin, byte_sent: threading.Event | None = None) -> str:
    """Serves a page that goes on, a byte now and then, until the site ends."""

    def drip(handler: Any) -> None:
        begin(handler)
        while not site.ended.wait(PAUSE):
            handler.wfile.write(b"x")
            if byte_sent is not None:
                byte_sent.set()

    site.pages["/a"] = drip
    return site.url + "/a"


@pytest.mark.parametrize("begin", [headers, half_a_header])
def test_a_slow_server_is_given_up_in_time(site: Site, begin: Begin) -> None:
    """Each byte comes soon enough; the page never ends."""
    refused("network.failed", for_ever(site, begin), timeout_s=0.3)


def test_a_silent_server_is_given_up_in_time(site: Site) -> None:
    site.pages["/a"] = lambda handler: site.ended.wait()
    refused("network.failed", site.url + "/a", timeout_s=0.3)


def test_a_fetch_can_be_cancelled(site: Site) -> None:
    begun = threading.Event()
    refused("operation.cancelled", for_ever(site, headers, begun), cancelled=begun.is_set)


def test_progress_never_goes_beyond_the_whole(site: Site) -> None:
    reports: list[tuple[int, int | None]] = []
    tell = lambda current, total: reports.append((current, total))  # noqa: E731
    get(site.page("/a", b"x" * 5000, type="text/plain"), progress=tell)
    assert reports[-1] == (5000, 5000)
    packed = gzip.compress(b"words " * 1000)
    get(site.page("/b", packed, type="text/plain", Content_Encoding="gzip"), progress=tell)
    assert all(total is None or current <= total for current, total in reports)


# ------------------------------------------------------------------------ doc.fetch


def test_a_fetched_page_becomes_a_document(open_session: OpenSession, site: Site) -> None:
    session = open_session(allow_private=True)
    url = site.page("/wiki.html", PAGE)
    document = session.data("doc.fetch", url=url, tags=["Web"])
    assert (document["title"], document["type"], document["source"]["url"]) == ("Wiki", "html", url)
    assert document["tags"] == ["web"]
    seq = session.store.seq
    assert session.data("doc.fetch", url=url)["revision"] == 1, "nothing has changed"
    assert session.store.seq == seq
    site.page("/wiki.html", PAGE.replace(b"Friday", b"Monday"))
    session.data("doc.update", id=document["id"], tags=["web", "by-hand"], metadata={"k": 1})
    again = session.data("doc.fetch", url=url)
    assert (again["id"], again["revision"]) == (document["id"], 3)
    assert set(again["tags"]) == {"web", "by-hand"}, "what was given by hand stays"
    assert again["metadata"].get("k") == 1
    assert session.data("search", query="monday", mode="fts")["total_matches"] == 1


def test_a_fetch_happens_once(open_session: OpenSession, site: Site) -> None:
    session = open_session(allow_private=True)
    url = site.page("/wiki.html", PAGE)
    first = session.data("doc.fetch", url=url, client_token="t")
    requests = len(site.asked)
    again = session.ask("doc.fetch", url=url, client_token="t")["result"]
    assert (again["data"], again["meta"]["duplicate"]) == (first, True)
    assert len(site.asked) == requests


def test_private_addresses_are_blocked_unless_allowed(open_session: OpenSession) -> None:
    session = open_session()
    error = session.error("doc.fetch", url="http://127.0.0.1:1/")
    assert (error["type"], error["exit_code"]) == ("network.blocked", 6)
    assert session.data("status")["total_documents"] == 0
