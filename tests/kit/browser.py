"""A person's browser: Debian's chromium without a window, and `kbproc open` as its server."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.patience import PATIENCE, until
from tests.kit.shell import environment
from tests.kit.start import start

_SHOWN = "return document.getElementById('main')?.dataset.shown === location.hash"
_READS = "return document.body.innerText.includes(arguments[0])"
_FINDS = (
    "return [...document.querySelectorAll(arguments[0])].find(e => e.checkVisibility() && "
    "!e.disabled && (e.innerText || e.value || e.ariaLabel || '').includes(arguments[1]))"
)
# The page itself looks every 10 ms, for up to a second: a look from outside takes three processes.
_LOOKS = """
const done = arguments[arguments.length - 1];
const condition = function () { %s };
const look = (looks) => {
  const value = condition.apply(null, arguments);
  if (value || !looks) done(value); else setTimeout(look, 10, looks - 1);
};
look(100);
"""
# The shell has no windows to draw, which saves a fifth of the time. Debian's script of that name
# does not pass on signals, so a driver would end the script alone.
_SHELL = "/usr/lib/chromium/chromium-headless-shell"
CHROMIUM = shutil.which(_SHELL) or shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
Message = dict[str, Any]


class Response(NamedTuple):
    """An HTTP response. `body`: decoded, where it is JSON."""

    status: int
    headers: dict[str, str]
    body: Any


class Page:
    """A running `kbproc open`, and requests as its page makes them."""

    def __init__(self, store: Path, *flags: str, **env: str) -> None:
        folder = store.parent
        argv = ["-m", "kbproc", "open", "--no-browser", "--store", str(store)]
        self.process = start(
            [*argv, "--format", "json", *flags],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", **environment(folder), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.address: str = json.loads(line)["data"]["address"]
        self.url, _, self.token = self.address.partition("#token=")
        self.host = urllib.parse.urlsplit(self.url).netloc
        self.cookie = self.key = ""

    def request(self, method: str, path: str, body: Any = None, **headers: str | None) -> Response:
        """Sends a request as the page does; a header of None is left out, `_` stands for `-`."""
        usual: dict[str, str | None] = {"Host": self.host, "X_Kbproc_Window": "test"}
        if method == "POST":
            usual |= {"Origin": f"http://{self.host}", "Content_Type": "application/json"}
        if self.key:
            usual |= {"Cookie": self.cookie, "X_Kbproc_Key": self.key}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in {**usual, **headers}.items():
                if value is not None:
                    connection.putheader(name.replace("_", "-"), value)
            if data is not None and "Content_Length" not in headers:
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            response = connection.getresponse()
            text = response.read()
            is_json = response.headers["Content-Type"] == "application/json"
            return Response(
                response.status, dict(response.headers), json.loads(text) if is_json else text
            )

    @property
    def port(self) -> int:
        return int(self.host.rpartition(":")[2])

    def login(self) -> Page:
        """Exchanges the token, as the page does when it opens."""
        response = self.request("POST", "/login", {"token": self.token})
        assert response.status == 200, response
        self.cookie = response.headers["Set-Cookie"].partition(";")[0]
        self.key = response.body["key"]
        return self

    def ask(self, method: str, **params: Any) -> Message:
        """Returns the JSON-RPC response of a request that the page may send."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        response = self.request("POST", "/api", body)
        assert response.status == 200, response
        return response.body  # type: ignore[no-any-return]

    def data(self, method: str, **params: Any) -> Any:
        answer = self.ask(method, **params)
        assert "result" in answer, answer
        return answer["result"]["data"]

    def end(self) -> int:
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode


class Person:
    """Looks at the page and uses it: finds by what it reads, clicks, types."""

    def __init__(self, driver: Any, page: Page) -> None:
        self.driver = driver
        self.page = page
        self.handle = driver.current_window_handle
        driver.get("about:blank")
        driver.get_log("browser")  # drops the complaints about an earlier page, whose server ended

    def open(self, path: str = "") -> Person:
        """Opens the address; with a path, goes there in the open window."""
        if path:
            self.driver.execute_script("location.hash = arguments[0]", f"#/{path}")
        else:
            self.driver.get(self.page.address)
        self.settled()
        return self

    def look(self) -> Person:
        """Turns to this person's window."""
        self.driver.switch_to.window(self.handle)
        return self

    def enter(self) -> Person:
        """Opens the address; the test, too, gets the cookie and the key."""
        self.open()
        name = f"kbproc-{self.page.port}"  # because cookies are shared by all ports
        cookie = next(one for one in self.driver.get_cookies() if one["name"] == name)
        assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
        self.page.cookie = f"{name}={cookie['value']}"
        self.page.key = json.loads(self.script("return sessionStorage.getItem('kbproc')"))["key"]
        return self

    def settled(self) -> None:
        self.awaited(_SHOWN, "the view")

    def awaited(self, code: str, what: str, *arguments: Any) -> Any:
        """Waits until the script returns something, and returns that."""
        values: list[Any] = []

        def look() -> Any:
            values.append(self._look(_LOOKS % code, *arguments))
            return values[-1]

        until(look, what, self.text)
        return values[-1]

    def _look(self, code: str, *arguments: Any) -> Any:
        """Returns what the script hands over; None if the document goes before."""
        from selenium.common import JavascriptException

        try:
            return self.driver.execute_async_script(code, *arguments)
        except JavascriptException as error:
            if "unloaded" not in str(error):
                raise
            return None

    def script(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def text(self) -> str:
        return str(self.script("return document.body.innerText"))

    def sees(self, *texts: str) -> None:
        for text in texts:
            self.awaited(_READS, repr(text), text)

    def find(self, css: str, text: str = "") -> Any:
        """Returns the first shown element of this kind that holds the text."""
        return self.awaited(_FINDS, f"{css} {text}", css, text)

    def click(self, text: str, css: str = "button") -> None:
        self.script("arguments[0].click()", self.find(css, text))

    def type(self, css: str, text: str) -> None:
        node = self.find(css)
        node.clear()
        node.send_keys(text)

    def problems(self) -> list[str]:
        """Returns what the browser complained about, and what a hostile text has run."""
        complaints = [line["message"] for line in self.driver.get_log("browser")]
        ran = self.script("return window.ran || null")
        return complaints + ([] if ran is None else [f"ran {ran}"])


@contextlib.contextmanager
def opened(store: Path, *flags: str, **env: str) -> Iterator[Page]:
    page = Page(store, *flags, **env)
    try:
        yield page
    finally:
        page.end()


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Yields a driver of selenium."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--window-size=1280,900",
        "--lang=en-US",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()
