"""Asks the requests of one command, such as `kbproc search`, and returns their answers.

The command asks the owner of the store over a link. If the owner ends before it answers, the next
one is asked. Without an owner this process becomes it, and the link leads to itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from kbproc.base import sockets
from kbproc.base.errors import KbprocError
from kbproc.base.params import MADE_BY_US
from kbproc.base.values import as_json
from kbproc.client.asker import AskedRequest, Asker
from kbproc.client.in_flight import with_token
from kbproc.engine.store.folder import is_store
from kbproc.surfaces.sharing.link import (
    RESTART,
    Check,
    Gone,
    Hello,
    Link,
    converse,
    deadly,
    refusal,
)
from kbproc.surfaces.sharing.link import hello as hello_of
from kbproc.surfaces.sharing.reach import Waiting, reach_or_listen
from kbproc.surfaces.wire.jsonrpc import timeout_of

if TYPE_CHECKING:
    from kbproc.base.host import Host
    from kbproc.base.settings.config import Config
    from kbproc.methods.calls.registry import Registry
    from kbproc.surfaces.sharing.here import OwnerHere, Progress
    from kbproc.surfaces.sharing.owner import Owner
    from kbproc.surfaces.sharing.reach import Listening

OnEvent = Callable[[dict[str, Any]], None]
_LOCAL = frozenset({"version", "describe", "schema"})  # methods that need no store


class Command:
    """The requests of one command, one after the other."""

    def __init__(
        self,
        *,
        config: Config,
        registry: Registry,
        host: Host,
        approved_addresses: Collection[str] = (),
        surface: str = "call",
    ) -> None:
        self._surface = surface
        self._config = config
        self._registry = registry
        self._host = host
        self._approved_addresses = sorted(approved_addresses)
        self._link: Link | None = None  # to the owner in another process
        self.here: OwnerHere | None = None  # the owner, once it is this process
        self._local: OwnerHere | None = None  # for requests that need no owner of the store
        self._asker = Asker(RESTART)
        self._request: AskedRequest | None = None
        self._model_problem: str | None = None

    def result(
        self, name: str, params: dict[str, Any], on_event: OnEvent = lambda event: None
    ) -> dict[str, Any]:
        """Returns the result of a method. Raises the error of the response."""
        response = self.ask(name, params, on_event)
        if "error" in response:
            raise refusal(response["error"]["data"])
        result: dict[str, Any] = response["result"]
        return result

    def ask(self, name: str, params: dict[str, Any], on_event: OnEvent) -> dict[str, Any]:
        """Returns the JSON-RPC response, decoded: with `result` or with `error`."""
        timeout_ms = params.get("timeout_ms")
        if timeout_ms is not None:
            timeout_ms = timeout_of(as_json({"timeout_ms": timeout_ms}))
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        answers: list[dict[str, Any]] = []
        request = self._asker.ask(name, params, answers.append, on_event, timeout_s)
        self._request = request
        try:
            if self._is_local(name, params):
                self._local = self._local or self._late_owner_here()
                self._converse(self._local.link, self._local.look)
            else:
                self._ask_owners(request, Waiting(self._config.store, timeout_ms))
                self._check_answer(request, answers[0])
            # The id is used again, because events show it; not the id of a request that ended
            # early, because that may still get a response.
            self._asker.last_id = request.id - 1
        except KbprocError as error:
            answers = [self._refused(_with_retry(error, name, request.params))]
        finally:
            self._asker.drop(request)
        self._request = None
        return answers[0]

    def _ask_owners(self, request: AskedRequest, waiting: Waiting) -> None:
        """Asks one owner after the other for the answer. Raises KbprocError without one."""
        writes = self._registry.outlines.methods[request.method].kind != "read"
        while True:
            try:
                link, check = self._reach(waiting)
                if writes and self.here is None:
                    # The token tells the next owner whether the last one has done the write.
                    request.params = with_token(
                        request.params, f"{MADE_BY_US}{os.urandom(12).hex()}"
                    )
                self._converse(link, check)
                return
            except Gone as error:
                if self.here is not None:
                    from kbproc.surfaces.wire.messages import unexpected

                    raise unexpected(error) from error
                request.note_end(died=self._link is not None and not self._link.is_handed_over)
                self._drop()
                if request.is_deadly:
                    raise deadly(request.method) from error
            except KbprocError:
                self._drop()  # so that an owner that wakes later begins no write
                raise

    def _check_answer(self, request: AskedRequest, answer: dict[str, Any]) -> None:
        """Raises the error of a store that does not open after an owner may have done the write."""
        data = answer.get("error", {}).get("data", {})
        may_be_done = request.params.get("client_token") is not None and request.is_repeated
        if may_be_done and self.here is not None and str(data.get("type")).startswith("store."):
            raise refusal(data)

    def _converse(self, link: Link, check: Check) -> None:
        try:
            converse(self._asker, link, check)
        finally:
            self._asker.end()

    def _is_local(self, name: str, params: dict[str, Any]) -> bool:
        """Returns whether this process answers the request, whichever process is the owner."""
        if name not in self._registry.methods or name in _LOCAL or params.get("repair"):
            return True
        return name == "doctor" and not is_store(self._config.store)  # which makes no store

    def _refused(self, error: KbprocError) -> dict[str, Any]:
        """Returns the response that holds the error."""
        from kbproc.surfaces.wire.messages import Wire

        response: dict[str, Any] = msgspec.json.decode(
            Wire(sys.maxsize, reads_files=True).error(0, error)
        )
        return response

    def cancel(self) -> None:
        """Asks the running request to stop; its commits stay. A signal handler may call this."""
        if self._request is not None:
            with contextlib.suppress(Gone):
                self._asker.cancel(self._request.id)

    # --------------------------------------------------------------------------- the owner

    def _reach(self, waiting: Waiting) -> tuple[Link, Check]:
        """Returns the link to the owner, and the check of a wait. Raises Gone, KbprocError."""
        if self.here is None and self._link is None:
            reached = reach_or_listen(self._config, self._host.pid(), waiting.for_owner)
            if isinstance(reached, sockets.Socket):
                link = Link(reached)
                link.greet(self._hello(), partial(waiting.for_answer, link.pid))
                self._link = link
            else:
                self.here = self._owner_here(reached)
        if self.here is not None:
            return self.here.link, self.here.look
        if self._link is None:
            raise Gone
        return self._link, partial(waiting.for_answer, self._link.pid)

    def _hello(self) -> Hello:
        hello = hello_of(self._config, self._host.cwd())
        return replace(hello, approved_addresses=self._approved_addresses, surface=self._surface)

    def _owner_here(self, listening: Listening | None) -> OwnerHere:
        from kbproc.surfaces.sharing.here import OwnerHere  # not above: another may be the owner

        return OwnerHere(self._owner(listening), self._hello())

    def _late_owner_here(self) -> OwnerHere:
        from kbproc.surfaces.sharing.here import LateOwner, OwnerHere

        owner = LateOwner(self._config, self._host, self._registry, lambda: self._owner(None))
        return OwnerHere(owner, self._hello())

    def _owner(self, listening: Listening | None) -> Owner:
        from kbproc.surfaces.sharing.owner import Owner  # not above: some methods need no store

        return Owner(self._config, self._host, listening, registry=self._registry, for_one=True)

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None

    def close(self) -> None:
        self._drop()
        for here in (self.here, self._local):
            if here is not None:
                here.close(is_working=self._request is not None)

    # --------------------------------------------------------------------------- embedding

    def drain(self, after_seq: int, progress: Progress, deadline: float | None) -> int:
        """Embeds the changes after this position; returns the number of chunks still pending.

        `deadline`: by the monotonic clock; None sets no limit.
        """
        if self.here is not None:
            return self.here.drain(after_seq, progress, deadline)
        if self._link is None:
            return 0

        def show(event: dict[str, Any]) -> None:
            if event["type"] == "progress":
                progress(event["stage"], event["current"], event["total"])

        params: dict[str, Any] = {"after_seq": after_seq}
        if deadline is not None:
            params["timeout_ms"] = max(0, round((deadline - time.monotonic()) * 1000))
        with contextlib.suppress(KeyboardInterrupt):
            answer = self.ask("doc.wait", params, show)
            if "result" in answer:
                return 0
            error = answer["error"]["data"]
            if "pending" in error["detail"]:  # the time is up
                return int(error["detail"]["pending"])
            if error["type"] == "model.unavailable" and error["retryable"] is False:
                self._model_problem = error["message"]
            elif error["type"] in {"operation.timeout", "store.locked"}:
                return 0  # because the owner does not answer any more
        meta = self.ask("status", {}, lambda event: None).get("result", {}).get("meta", {})
        return int(meta.get("freshness", {}).get("pending_embeddings", 0))

    @property
    def model_problem(self) -> str | None:
        """Returns why `drain` can embed nothing: the model is not on this machine."""
        return self._model_problem if self.here is None else self.here.model_problem


def result_of(config: Config, name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Returns the result of one method, for a command that is no method. Raises KbprocError."""
    from kbproc.base.host import Host
    from kbproc.methods.all import registry

    command = Command(config=config, registry=registry(), host=Host())
    try:
        return command.result(name, params)
    finally:
        command.close()


def _with_retry(error: KbprocError, name: str, params: dict[str, Any]) -> KbprocError:
    """Returns the error; that of a write which an owner may have done holds its token."""
    if params.get("client_token") is None or params.get("dry_run"):
        return error
    from kbproc.methods.calls.retry import with_token_and_retry

    return with_token_and_retry(error, name, params)
