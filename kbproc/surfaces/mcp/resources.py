"""Documents and notes as resources: kb://doc/{id}, kb://note/{agent}/{slug}.

Owns: their addresses, the list of documents, and reading one.
Refuses to know: who is told when one changes (changes.py).
"""

from __future__ import annotations

import re
import threading
from typing import Any

from kbproc.mcp import protocol
from kbproc.mcp.inside import Inside, Message
from kbproc.mcp.protocol import Refusal
from kbproc.mcp.session import PUBLIC, STALE, Request

_DOC = re.compile(r"kb://doc/([1-9][0-9]{0,15})")
_NOTE = re.compile(r"kb://note/([a-z0-9-]{2,64})/([a-z0-9-]{2,64})")
_PAGE = 50
# Some clients count a server as connected once the first list has come.
PATIENCE_S = 0.5
_LIST_CHANGED = "notifications/resources/list_changed"
_TEMPLATES = [
    {
        "uriTemplate": "kb://doc/{id}",
        "name": "document",
        "title": "A document's text",
        "description": "A document, entry or note by id, as search_knowledge names it.",
    },
    {
        "uriTemplate": "kb://note/{agent}/{slug}",
        "name": "note",
        "title": "An agent's note",
        "description": "A note by its agent and slug.",
        "mimeType": "text/markdown",
    },
]
_MIME = {"markdown": "text/markdown", "html": "text/html", "knowledge": "text/markdown"}


def uri_of(document: int) -> str:
    return f"kb://doc/{document}"


def read_of(uri: Any) -> tuple[str, dict[str, Any]] | None:
    """The method and params that read it; None for what is no address here."""
    if not isinstance(uri, str):
        raise Refusal(protocol.INVALID_PARAMS, "params.uri must be a string.")
    if found := _DOC.fullmatch(uri):
        return "doc.get", {"id": int(found[1]), "text": True}
    if found := _NOTE.fullmatch(uri):
        return "note.get", {"agent": found[1], "slug": found[2]}
    return None


class Resources:
    """The resources of one client."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside

    def list(self, request: Request) -> None:
        """The first list may come before the store is open: then it is empty, and a notification
        follows. Only the older era has that notification without a subscription.
        """
        params: dict[str, Any] = {"limit": _PAGE}
        if (cursor := request.params.get("cursor")) is not None:
            params["cursor"] = cursor
        early = None
        if not self._inside.has_begun and not request.is_modern and cursor is None:
            early = threading.Timer(PATIENCE_S, lambda: request.reply({"resources": []}))
            early.daemon = True
            early.start()

        def answer(response: Message) -> None:
            if early is not None:
                early.cancel()
            is_late = not request.session.is_open(request)
            if "error" in response:
                request.refuse(_refusal(response["error"]["data"]))
                return
            result = response["result"]
            found: dict[str, Any] = {"resources": [_resource(one) for one in result["data"]]}
            if result["meta"].get("next_cursor"):
                found["nextCursor"] = result["meta"]["next_cursor"]
            request.reply(found, cache=STALE)
            if early is not None and is_late and found["resources"]:
                request.session.send(protocol.notification(_LIST_CHANGED, {}))

        self._inside.ask("doc.list", params, answer)

    def templates(self, request: Request) -> None:
        request.reply({"resourceTemplates": _TEMPLATES}, cache=PUBLIC)

    def read(self, request: Request) -> None:
        uri = request.params.get("uri")
        wanted = read_of(uri)
        if wanted is None:
            raise _unknown(request, uri)

        def answer(response: Message) -> None:
            if "result" in response:
                contents = [_contents(str(uri), response["result"]["data"])]
                request.reply({"contents": contents}, cache=STALE)
                return
            data = response["error"]["data"]
            is_there = data["type"] != "resource.not_found"
            request.refuse(_refusal(data) if is_there else _unknown(request, uri))

        id = self._inside.ask(*wanted, answer)
        request.on_cancel = lambda: self._inside.cancel(id)


def _resource(document: dict[str, Any]) -> dict[str, Any]:
    found = {"uri": uri_of(document["id"]), "name": document["title"] or f"{document['id']}"}
    return {**found, "mimeType": _MIME.get(document["type"], "text/plain")}


def _contents(uri: str, data: dict[str, Any]) -> dict[str, Any]:
    kind = data.get("type", "markdown")
    return {"uri": uri, "mimeType": _MIME.get(kind, "text/plain"), "text": data["text"] or ""}


def _unknown(request: Request, uri: Any) -> Refusal:
    code = protocol.INVALID_PARAMS if request.is_modern else protocol.NOT_FOUND_LEGACY
    return Refusal(code, f"There is no resource {uri!r}.", {"uri": uri})


def _refusal(data: dict[str, Any]) -> Refusal:
    """What the store says, as an error of the protocol."""
    is_theirs = data["exit_code"] in {1, 6}
    code = protocol.INVALID_PARAMS if is_theirs else protocol.INTERNAL_ERROR
    return Refusal(code, f"{data['message']} {data['hint']}".strip(), {"kbproc/error": data})
