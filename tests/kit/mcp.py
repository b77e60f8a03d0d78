"""A client of the Model Context Protocol that sends and checks raw lines."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kit.protocol import check
from tests.kit.talk import Process

MODERN = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
ADMIN = (
    "admin,doc:read,doc:write,kb:read,kb:write,knowledge:read,knowledge:write,note:read,"
    "note:write,session:read,session:write,store:read,chunk:read,agent:read"
)
Message = dict[str, Any]


class Client:
    """Checks every received line against the protocol's schema.

    `era`: the version that it initializes with, or MODERN, which has no handshake.
    """

    def __init__(
        self, process: Process, era: str = MODERN, *, name: str = "lines", **capabilities: Any
    ) -> None:
        self.process = process
        self.era = era
        self.told: list[Message] = []  # notifications and requests received before answers
        self._id = 0
        self._asked: dict[int, str] = {}
        self._capabilities = capabilities
        self._info = {"name": name, "version": "1"}
        if era != MODERN:
            self.introduced = self.ask(
                "initialize",
                protocolVersion=era,
                capabilities=capabilities,
                clientInfo=self._info,
            )
            self.notify("notifications/initialized")

    def ask(self, method: str, /, meta: Message | None = None, **params: Any) -> Message:
        """Returns the whole answer; earlier messages go to `told`."""
        return self.answer_to(self.send(method, meta, **params))

    def send(self, method: str, /, meta: Message | None = None, **params: Any) -> int:
        self._id += 1
        self._asked[self._id] = method
        if self.era == MODERN:
            own = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": self._capabilities}
            if self._info["name"] != "lines":
                own["io.modelcontextprotocol/clientInfo"] = self._info
            params["_meta"] = {**own, **(meta or {})}
        elif meta:
            params["_meta"] = meta
        self.line({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        return self._id

    def answer_to(self, id: int | str | None) -> Message:
        while True:
            message = self.next()
            if "method" not in message and message.get("id") == id:
                return message
            self.told.append(message)

    def next(self) -> Message:
        return self.checked(self.process.receive())

    def checked(self, line: bytes) -> Message:
        message: Message = json.loads(line)
        method = self._asked.get(message.get("id", 0))
        if "method" in message or "error" in message or method is not None:
            check(message, self.era, method)
        return message

    def until(self, method: str) -> Message:
        """Returns the next notification or request of this method."""
        while (message := self.next()).get("method") != method:
            self.told.append(message)
        return message

    def line(self, message: Any) -> None:
        self.process.send(json.dumps(message, ensure_ascii=False).encode())

    def notify(self, method: str, **params: Any) -> None:
        self.line({"jsonrpc": "2.0", "method": method, "params": params})

    def call(self, tool: str, /, **arguments: Any) -> Message:
        """Returns the result of a call without a protocol error."""
        answer = self.ask("tools/call", name=tool, arguments=arguments)
        return answer["result"]  # type: ignore[no-any-return]

    def data(self, tool: str, /, **arguments: Any) -> Any:
        """Returns the data of a call that must succeed."""
        result = self.call(tool, **arguments)
        assert not result["isError"], result
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return result["structuredContent"]["data"]


@contextlib.contextmanager
def served(folder: Path, *, tools: str = "default", **options: Any) -> Iterator[Process]:
    """Runs `kbproc mcp` on the store below this folder."""
    arguments = {"runtime": folder / "runtime", **options}
    process = Process(folder / "store", cwd=folder, mcp=tools, **arguments)
    try:
        yield process
    finally:
        process.stop()


@contextlib.contextmanager
def client(
    folder: Path,
    *,
    era: str = MODERN,
    can: dict[str, Any] | None = None,
    name: str = "lines",
    **options: Any,
) -> Iterator[Client]:
    """Connects a client. `can`: its capabilities; `name`: its name in `clientInfo`."""
    with served(folder, **options) as process:
        yield Client(process, era, name=name, **(can or {}))
