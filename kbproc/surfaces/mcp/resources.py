"""Lists and reads documents and notes as resources: kb://doc/{id}, kb://note/{agent}/{slug}.

A long text is read in parts.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from kbproc.client.asker import Message
from kbproc.surfaces.mcp import protocol, results
from kbproc.surfaces.mcp.protocol import PUBLIC, STALE, McpRequest, Refusal
from kbproc.surfaces.mcp.toolbox import WireRequest
from kbproc.surfaces.sharing.inside import Inside

# `offset`: where a part of a long text begins, in characters.
_OFFSET = r"(?:\?offset=([0-9]{1,12}))?"
_DOC = re.compile(rf"kb://doc/([1-9][0-9]{{0,15}}){_OFFSET}")
_NOTE = re.compile(rf"kb://note/([a-z0-9-]{{2,64}})/([a-z0-9-]{{2,64}}){_OFFSET}")
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
    """Returns the method and params that read the resource; None for any other address."""
    if not isinstance(uri, str):
        raise Refusal(protocol.INVALID_PARAMS, "params.uri must be a string.")
    if match := _DOC.fullmatch(uri):
        return "doc.get", {"id": int(match[1]), "text": True, **_offset(match[2])}
    if match := _NOTE.fullmatch(uri):
        return "note.get", {"agent": match[1], "slug": match[2], **_offset(match[3])}
    return None


def _offset(digits: str | None) -> dict[str, int]:
    return {"offset": int(digits)} if digits else {}


class Resources:
    """The resources of one client."""

    def __init__(self, inside: Inside, reading: Callable[[WireRequest], str | None]) -> None:
        """`reading` returns the call of a tool that makes the same request; None without one."""
        self._inside = inside
        self._reading = reading

    def list(self, request: McpRequest) -> None:
        """Lists documents. Before the store is open the list is empty, and a notification follows.

        Only the older era has that notification without a subscription.
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
            resources = [_resource(document) for document in result["data"]]
            page: dict[str, Any] = {"resources": resources}
            if result["meta"].get("next_cursor"):
                page["nextCursor"] = result["meta"]["next_cursor"]
            request.reply(page, cache=STALE)
            if early is not None and is_late and resources:
                request.session.send(protocol.notification_line(_LIST_CHANGED, {}))

        self._inside.ask("doc.list", params, answer)

    def templates(self, request: McpRequest) -> None:
        request.reply({"resourceTemplates": _TEMPLATES}, cache=PUBLIC)

    def read(self, request: McpRequest) -> None:
        uri = request.params.get("uri")
        reading = read_of(uri)
        if reading is None:
            raise _unknown(request, uri)
        full_request = WireRequest(*reading)
        sized = results.sized(full_request)

        def answer(response: Message) -> None:
            if "result" in response:
                result = results.fitted(response["result"], sized)
                contents = [_contents(str(uri), result["data"])]
                if (offset := result["meta"].get("next_offset")) is not None:
                    contents.append(self._rest(str(uri), full_request, offset))
                request.reply({"contents": contents}, cache=STALE)
                return
            data = response["error"]["data"]
            is_missing = data["type"] == "resource.not_found"
            request.refuse(_unknown(request, uri) if is_missing else _refusal(data))

        id = self._inside.ask(sized.method, sized.params, answer).id
        request.on_cancel = lambda: self._inside.cancel(id)

    def _rest(self, uri: str, request: WireRequest, offset: int) -> dict[str, Any]:
        """Returns a content that names the address of the text's next part."""
        following = f"{uri.partition('?')[0]}?offset={offset}"
        tool = self._reading(WireRequest(request.method, {**request.params, "offset": offset}))
        ways = f"{tool}, or the resource {following}" if tool else f"the resource {following}"
        text = f"The text goes on at character {offset:,}: {ways}."
        return {"uri": following, "mimeType": "text/plain", "text": text}


def _resource(document: dict[str, Any]) -> dict[str, Any]:
    names = {"uri": uri_of(document["id"]), "name": document["title"] or f"{document['id']}"}
    return {**names, "mimeType": _MIME.get(document["type"], "text/plain")}


def _contents(uri: str, data: dict[str, Any]) -> dict[str, Any]:
    kind = data.get("type", "markdown")
    return {"uri": uri, "mimeType": _MIME.get(kind, "text/plain"), "text": data["text"] or ""}


def _unknown(request: McpRequest, uri: Any) -> Refusal:
    code = protocol.INVALID_PARAMS if request.is_modern else protocol.NOT_FOUND_LEGACY
    return Refusal(code, f"There is no resource {uri!r}.", {"uri": uri})


def _refusal(data: dict[str, Any]) -> Refusal:
    """Returns the store's error as an error of the protocol."""
    is_theirs = data["exit_code"] in {1, 6}
    code = protocol.INVALID_PARAMS if is_theirs else protocol.INTERNAL_ERROR
    text = f"{data['message']} {results.hint_of(data)}".strip()
    return Refusal(code, text, {"kbproc/error": data})
