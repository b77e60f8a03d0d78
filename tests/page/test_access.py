"""Who gets an answer from the page's server, and what the page may ask."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.params import PastListParams, PastParams
from kbproc.methods.all import registry
from kbproc.surfaces.page import bridge, neighbours, run
from kbproc.surfaces.page.access import Access
from kbproc.surfaces.page.server import MOST_CONNECTIONS, PageServer, page_files
from kbproc.surfaces.sharing.inside import Inside
from tests.kit.browser import Page, opened
from tests.kit.fixed import FixedHost
from tests.kit.patience import PATIENCE, until

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}
ELSEWHERE = "http://evil.example"


@pytest.fixture(scope="module")
def fresh(store: Path, page: Page) -> Iterator[Page]:
    """A second page on the same store, whose token was not exchanged."""
    with opened(store, "--read-only") as fresh:
        yield fresh


@pytest.mark.parametrize("path", ["/", "/page.js", "/login", "/api", "/events"])
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "[::1]:80", "", None])
def test_another_host_is_refused(page: Page, path: str, host: str | None) -> None:
    """A name of others that leads to the loopback (DNS rebinding) gets nothing."""
    method = "POST" if path in {"/login", "/api"} else "GET"
    response = page.request(method, path, PING if method == "POST" else None, Host=host)
    assert response.status in {400, 421} and "result" not in str(response.body)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": ELSEWHERE},
        {"Origin": "null"},
        {"Origin": None},
        {"Origin": "http://localhost:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/api", "/login"])
def test_another_origin_is_refused(page: Page, path: str, headers: dict[str, Any]) -> None:
    assert page.request("POST", path, PING, **headers).status == 403


@pytest.mark.parametrize("path", ["/", "/page.js", "/events"])
def test_another_page_can_not_load_parts(page: Page, path: str) -> None:
    assert page.request("GET", path, Origin=ELSEWHERE).status == 403
    assert page.request("GET", path, Sec_Fetch_Site="cross-site").status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Cookie": None},
        {"X_Kbproc_Key": None},
        {"Cookie": None, "X_Kbproc_Key": None},
        {"X_Kbproc_Key": "0" * 64},
        {"Cookie": "kbproc=0"},
    ],
)
def test_without_cookie_and_key_nothing_is_answered(page: Page, headers: dict[str, Any]) -> None:
    assert page.request("POST", "/api", PING, **headers).status == 401
    assert page.request("GET", "/events", **headers).status == 401


@pytest.mark.parametrize(
    "type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None]
)
def test_a_form_is_refused(page: Page, type: str | None) -> None:
    """A form of another page can send these types without being asked first."""
    assert page.request("POST", "/api", PING, Content_Type=type).status == 415


def test_the_token_is_valid_once(page: Page) -> None:
    assert page.request("POST", "/login", {"token": page.token}).status == 403


@pytest.mark.parametrize("body", [{"token": ""}, {"token": "0" * 64}, {}, {"token": 1}, b"{", b""])
def test_a_wrong_token_takes_nothing(fresh: Page, body: Any) -> None:
    assert fresh.request("POST", "/login", body).status in {400, 403}


def test_the_cookie_is_kept_from_scripts_and_other_sites(fresh: Page) -> None:
    response = fresh.request("POST", "/login", {"token": fresh.token})
    cookie = response.headers["Set-Cookie"]
    assert "; HttpOnly" in cookie and "; SameSite=Strict" in cookie
    assert fresh.token not in cookie and response.body["key"] not in cookie
    assert response.headers["Cache-Control"] == "no-store"
    fresh.cookie, fresh.key = cookie.partition(";")[0], response.body["key"]


def test_read_only_refuses_what_writes(fresh: Page, page: Page) -> None:
    if not fresh.key:
        fresh.login()
    body = {**PING, "method": "doc.update", "params": {"id": 1, "title": "x"}}
    assert fresh.request("POST", "/api", body).status == 403
    assert "result" in fresh.ask("doc.update", id=1, title="x", dry_run=True)
    assert page.data("doc.get", id=1)["title"] != "x"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("store.export", {"path": "out"}),
        ("doc.download", {"id": 1, "path": "out"}),
        ("doctor", {"repair": True}),
        ("doc.ingest", {"paths": ["/etc"]}),
        ("doc.fetch", {"url": "http://127.0.0.1/"}),
        ("model.use", {"name": "x"}),
        ("nothing", {}),
    ],
)
def test_the_page_asks_only_what_it_needs(page: Page, method: str, params: dict[str, Any]) -> None:
    response = page.request("POST", "/api", {**PING, "method": method, "params": params})
    assert response.status == 403


def test_the_methods_of_the_page_are_reads_and_writes() -> None:
    kinds = {name: method.kind for name, method in registry().methods.items()}
    assert {kinds.get(name, "read") for name in bridge.READS} == {"read"}
    assert "read" not in {kinds.get(name, "write") for name in bridge.WRITES}


def test_the_page_may_send_only_what_its_views_use() -> None:
    texts = [file.data.decode() for path, file in page_files().items() if path.endswith(".js")]
    views = "".join(text for text in texts if "const PAST" not in text)
    unused = {name for name in bridge.READS | bridge.WRITES if f'"{name}"' not in views}
    assert unused == set()


def test_the_page_knows_which_reads_can_look_back() -> None:
    past = {
        name
        for name, method in registry().methods.items()
        if issubclass(method.params, PastParams | PastListParams) and name in bridge.READS
    }
    text = page_files()["/wire.js"].data.decode()
    listed = text.partition("const PAST = new Set([")[2].partition("]")[0]
    assert set(json.loads(f"[{listed}]")) == past


def test_every_answer_carries_the_policy(page: Page) -> None:
    answers = [
        page.request("GET", "/"),
        page.request("GET", "/nothing"),
        page.request("PUT", "/api"),
        page.request("POST", "/api", PING),
        page.request("POST", "/api", PING, Cookie=None),
    ]
    assert [answer.status for answer in answers] == [200, 404, 501, 200, 401]
    for answer in answers:
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy
        assert "unsafe" not in policy and "require-trusted-types-for 'script'" in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert not any(name.startswith("Access-Control") for name in answer.headers)


def test_a_person_at_an_odd_address_is_led_home(page: Page) -> None:
    answer = page.request("GET", "/docs", Accept="text/html,*/*")
    assert answer.status == 404 and b"There is no such page" in answer.body
    assert b'<a href="/">' in answer.body and b"REASON" not in answer.body
    assert page.request("GET", "/docs").body["error"].startswith("There is no such page")
    assert page.request("GET", "/?from=a+bookmark").status == 200
    assert page.request("GET", "/refused.html").status == 404
    assert b"<noscript>" in page.request("GET", "/").body


@pytest.mark.parametrize("path", ["/../run.py", "/%2e%2e/run.py", "//etc/passwd", "/index.html/.."])
def test_only_the_files_of_the_page_are_read(page: Page, path: str) -> None:
    assert page.request("GET", path).status == 404


def test_the_page_holds_no_markup_from_texts() -> None:
    files = page_files()
    assert sum(len(file.data) for path, file in files.items() if path != "/") <= 200_000
    for path, file in files.items():
        text = file.data.decode()
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert way not in text, path
        assert " style=" not in text and "javascript:" not in text, path
    assert b"<script>" not in files["/"].data and b"http" not in files["/"].data


@pytest.mark.parametrize(
    ("body", "length", "status"),
    [
        (b"[]", None, 400),
        (b'{"jsonrpc":"2.0","method":"ping"}', None, 400),
        (b"\xff", None, 400),
        (b"[" * 100_000, None, 400),
        (b"{}", "5000000", 413),
        (b"{}", "-1", 411),
        (b"{}", "x", 411),
    ],
)
def test_odd_bodies_are_refused(page: Page, body: bytes, length: str | None, status: int) -> None:
    more = {} if length is None else {"Content_Length": length}
    assert page.request("POST", "/api", body, **more).status == status


def test_odd_lines_end_the_connection_only(page: Page) -> None:
    for data in (b"\x16\x03\x01\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b""):
        with closing(socket.create_connection(("127.0.0.1", page.port))) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            assert b"Traceback" not in connection.recv(1 << 16)
    assert "result" in page.ask("ping")


def test_scopes_are_those_of_the_command(store: Path, page: Page) -> None:
    with opened(store, "--scopes", "doc:read,store:read") as narrow:
        narrow.login()
        assert "result" in narrow.ask("doc.get", id=1)
        error = narrow.ask("doc.delete", ids=[1], dry_run=True)["error"]["data"]
        assert error["type"] == "auth.insufficient_scope"


@pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0, reason="only root becomes another user"
)
@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6"])
def test_another_user_of_the_machine_gets_nothing(page: Page, family: str) -> None:
    host = {"AF_INET": "127.0.0.1", "AF_INET6": "::ffff:127.0.0.1"}[family]
    code = (
        "import socket, sys\n"
        f"one = socket.socket(socket.{family})\n"
        f"one.connect(({host!r}, {page.port}))\n"
        f"one.sendall(b'GET / HTTP/1.1\\r\\nHost: 127.0.0.1:{page.port}\\r\\n\\r\\n')\n"
        "try:\n    print(len(one.recv(100)))\n"
        "except ConnectionResetError:\n    print(0)\n"
    )
    for user, answered in ((None, True), (65534, False)):
        outcome = subprocess.run(
            ["/usr/bin/env", "python3", "-c", code],
            user=user,
            capture_output=True,
            text=True,
            check=True,
            cwd="/",
        )
        assert (int(outcome.stdout) > 0) == answered


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel names no users elsewhere")
@pytest.mark.parametrize("end", ["stays", "closes", "resets"])
def test_a_connection_whose_user_has_gone_is_nobodys(end: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert neighbours.names_users(listener)
        with closing(socket.create_connection(listener.getsockname())) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            if end == "resets":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if end != "stays":
                client.close()
            connection, peer = listener.accept()
            with connection:
                assert neighbours.is_of_this_user(connection, peer) == (end == "stays")


@pytest.fixture
def server() -> Iterator[PageServer]:
    """A page's server within the test, whose bridge reaches no store."""
    server = PageServer(0)
    access = Access(FixedHost(), server.port)
    server.begin(access, bridge.Bridge(Inside(-1, -1), read_only=True), {})
    yield server
    server.shutdown()
    server.server_close()


def is_open(connection: socket.socket) -> bool:
    """Sends a byte, and returns true if the server still waits for more."""
    try:
        connection.sendall(b"x")
        return bool(connection.recv(100, socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_a_request_ends_that_comes_byte_by_byte(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbproc.surfaces.page.server.REQUEST_SECONDS", 0.3)
    head = f"Host: 127.0.0.1:{server.port}\r\nOrigin: http://127.0.0.1:{server.port}\r\n"
    body = f"{head}Content-Type: application/json\r\nContent-Length: 999999\r\n\r\n"
    for start in ("G", f"GET / HTTP/1.1\r\n{head}", f"POST /login HTTP/1.1\r\n{body}"):
        with closing(socket.create_connection(("127.0.0.1", server.port))) as client:
            client.sendall(start.encode())
            until(lambda client=client: not is_open(client), "the end of the connection")


def test_as_many_as_have_places_can_connect_at_once() -> None:
    """They need not wait for the server to accept them; none is turned away to try again."""
    with PageServer(0) as server, contextlib.ExitStack() as clients:
        for _ in range(MOST_CONNECTIONS):
            address = ("127.0.0.1", server.port)
            clients.enter_context(closing(socket.create_connection(address, PATIENCE)))


def test_who_has_the_key_gets_in_beside_any_number_of_others(page: Page) -> None:
    """Connections that say nothing make room, the oldest first; those with the key stay."""
    events = http.client.HTTPConnection("127.0.0.1", page.port)
    headers = {"Cookie": page.cookie, "X-Kbproc-Key": page.key, "X-Kbproc-Window": "beside"}
    with closing(events), contextlib.ExitStack() as others:
        events.request("GET", "/events", headers=headers)
        stream = events.getresponse()
        for _ in range(80):
            address = ("127.0.0.1", page.port)
            one = others.enter_context(closing(socket.create_connection(address)))
            one.sendall(b"GET / HTTP/1.1\r\n")
        assert "result" in page.ask("ping")
        page.data("doc.update", id=1, tags=["beside"])
        until(lambda: b"doc.update" in stream.readline(), "the news of the window that is open")


def test_news_reach_every_window(page: Page) -> None:
    """The log's records come as events to each window; two windows hear the same."""
    windows = []
    for name in ("one", "two"):
        connection = http.client.HTTPConnection("127.0.0.1", page.port)
        headers = {"Cookie": page.cookie, "X-Kbproc-Key": page.key, "X-Kbproc-Window": name}
        connection.request("GET", "/events", headers=headers)
        windows.append((connection, connection.getresponse()))
    page.data("doc.update", id=1, tags=["heard"])
    for connection, response in windows:
        with closing(connection):
            methods: list[str] = []

            def heard(response: Any = response, methods: list[str] = methods) -> bool:
                line = response.readline()
                if line.startswith(b"data: "):
                    event = json.loads(line[6:])
                    methods.append(event.get("record", {}).get("method", ""))
                return "doc.update" in methods

            until(heard, "the record of the change")


def test_a_streams_events_go_to_the_window_that_asked(page: Page) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", page.port)
    headers = {"Cookie": page.cookie, "X-Kbproc-Key": page.key, "X-Kbproc-Window": "test"}
    connection.request("GET", "/events", headers=headers)
    with closing(connection):
        response = connection.getresponse()
        answer = page.data("session.ask", session_id=1, question="How is git installed?")
        types = []

        def heard() -> bool:
            line = response.readline()
            if line.startswith(b'data: {"type":"event"'):
                event = json.loads(line[6:])["event"]
                assert event["request_id"] == 1
                types.append(event["type"])
            return types[-1:] == ["answer"] and "references" in types

        until(heard, "the stream's events")
        assert answer["status"] in {"finished", "refused"}


def test_a_browser_is_started_where_a_person_sees_it() -> None:
    assert not run.has_screen({}, "linux") and run.has_screen({}, "darwin")
    assert run.has_screen({"WAYLAND_DISPLAY": "w"}, "linux")


def test_a_port_in_use_is_an_error(store: Path, page: Page) -> None:
    argv = ["-m", "kbproc", "open", "--no-browser", "--store", str(store), "--format", "json"]
    done = subprocess.run(
        [sys.executable, *argv, "--port", str(page.port)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "--port" in done.stdout + done.stderr
