"""Answers from an OpenAI-compatible `/v1/chat/completions` endpoint, as they stream in.

Owns: the request, reading the stream, and what each failure means to the user.
Refuses to know: what the prompt says (wording.py). The key goes into one header and nowhere
else: no message, no detail, no repr. What the endpoint says of an error is not repeated: it may
hold the key.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.values import decoder
from kbproc.models import endpoint
from kbproc.models.answering.interface import I_DO_NOT_KNOW, Part, Prompt, Talk, Told, about_tokens
from kbproc.models.answering.wording import messages
from kbproc.models.endpoint import Silence

_CONNECT_SECONDS = 10.0
_MOST_CHARS = 200_000  # of an answer: what does not end by then does not end
_LONGEST_LINE = 1 << 20
_FIELDS = (b"data", b"event", b"id", b"retry", b"")  # of server-sent events; a comment has no name
_HINT = "Check llm.url and llm.model, and that the server runs."


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = decoder(_Chunk).decode


class LlmSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An endpoint as configured. `max_tokens`: of an answer; None leaves it to the endpoint.

    `timeout_s`: the longest silence; it bounds no answer that goes on.
    """

    url: str
    model: str
    api_key: str | None = None
    max_tokens: int | None = None
    timeout_s: float = 60.0

    def __repr__(self) -> str:
        return f"LlmSpec(model={self.model!r})"


class OpenAi:
    """One connection pool; any number of threads."""

    name = "openai"

    def __init__(self, spec: LlmSpec) -> None:
        self.model = spec.model
        self._spec = spec
        self._url = spec.url.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
        self._client: Any = None
        self._opening = threading.Lock()

    def prompt_tokens(self, prompt: Prompt) -> int:
        return sum(about_tokens(message["content"]) for message in messages(prompt))

    def answer(self, prompt: Prompt, talk: Talk) -> Told:
        if not prompt.is_known and not prompt.earlier:  # nobody needs to be asked
            talk.say([Part(I_DO_NOT_KNOW, ())])
            return Told(status="refused")
        import httpx

        body = {
            "model": self.model,
            "messages": messages(prompt),
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"max_tokens": self._spec.max_tokens} if self._spec.max_tokens else {}),
        }
        try:
            with (
                Silence(self._spec.timeout_s) as silence,
                self._connect().stream("POST", self._url, json=body) as response,
            ):
                _end_with(talk, response)
                if response.status_code != httpx.codes.OK:
                    raise _refusal(response)
                return _Reading(talk, silence).read(endpoint.raw(response))
        except endpoint.Packed:
            raise _unavailable("sent a packed answer, unasked", lasting=True) from None
        except endpoint.TooLong:
            raise _unavailable("sent more than 64 MiB", lasting=True) from None
        except httpx.TimeoutException as error:
            if talk.is_over:
                return Told(status="finished")
            connecting = isinstance(error, httpx.ConnectTimeout)
            raise _silent(self._spec.timeout_s, connecting=connecting) from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise _unavailable("has no valid address", lasting=True) from None
        except httpx.HTTPError as error:
            if talk.is_over:
                return Told(status="finished")
            # Not str(error): an address may carry a password.
            raise _unavailable(f"broke off ({type(error).__name__})") from None

    def _connect(self) -> Any:
        import httpx

        with self._opening:
            if self._client is None:
                key = self._spec.api_key
                self._client = endpoint.client(
                    headers={
                        **endpoint.HEADERS,
                        **({"Authorization": f"Bearer {key}"} if key else {}),
                    },
                    timeout=httpx.Timeout(self._spec.timeout_s, connect=_CONNECT_SECONDS),
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=8),
                )
        return self._client

    def prepare(self) -> None:
        """Loads httpx: that takes a tenth of a second, in which other threads stand still."""
        self._connect()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def _end_with(talk: Talk, response: Any) -> None:
    """A read that waits ends when nobody wants the answer any more."""
    stream = response.extensions.get("network_stream")
    found: Any = None if stream is None else stream.get_extra_info("socket")

    def end() -> None:
        with contextlib.suppress(OSError):
            found.shutdown(socket.SHUT_RDWR)

    if found is not None:
        talk.when_over(end)


class _Reading:
    """One stream on its way in."""

    def __init__(self, talk: Talk, silence: Silence) -> None:
        self._talk = talk
        self._silence = silence
        self._chars = 0
        self._said = ""  # the beginning of the answer
        self._finish: str | None = None
        self._usage = _Usage()
        self._has_ended = False
        self._is_stream = True

    def read(self, parts: Iterator[bytes]) -> Told:
        """Raises llm.unavailable for a stream that is cut off, malformed or endless."""
        import httpx

        try:
            self._take_all(parts)
        except httpx.HTTPError:
            if self._finish is None:
                raise
            # The model has said that it has said all: what becomes of the stream then is nothing.
        if self._talk.is_over:
            return Told(status="finished")
        return self._told()

    def _take_all(self, parts: Iterator[bytes]) -> None:
        for line in _lines(parts):
            if self._talk.is_over:
                return
            self._take(line)
            if self._has_ended:
                return

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        data = value.strip()
        self._is_stream = self._is_stream and name in _FIELDS
        if name != b"data" or not data:  # comments, names and ids of events
            return
        if data == b"[DONE]":
            self._has_ended = True
            return
        try:
            chunk = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise _unavailable("sent a chunk that can't be read", lasting=True) from None
        if chunk.error is not None:
            raise _unavailable("told of an error of its own")
        self._usage = chunk.usage or self._usage
        for choice in (chunk.choices or [])[:1]:
            self._finish = choice.finish_reason or self._finish
            if choice.delta is not None and choice.delta.content:
                self._say(choice.delta.content)

    def _say(self, text: str) -> None:
        self._chars += len(text)
        if self._chars > _MOST_CHARS:
            raise _unavailable(f"did not end within {_MOST_CHARS} characters", lasting=True)
        self._silence.heard()
        self._said = (self._said + text)[:100]
        self._talk.say([Part(text.encode("utf-8", "replace").decode())])

    def _told(self) -> Told:
        """Whatever ends without saying so was cut off."""
        if not self._is_stream and not self._chars:
            raise _unavailable("answered with no stream of events", lasting=True)
        if self._finish is None and not self._has_ended:
            raise _unavailable("broke off before its answer had ended")
        if self._finish == "content_filter":
            raise _unavailable("withheld the rest of its answer", lasting=True)
        if not self._chars:
            raise _unavailable("ended without an answer")
        if self._finish == "length":
            self._talk.warn("The model stopped at its limit of tokens: the answer is not whole.")
        unknown = self._said.strip().rstrip(".").lower().replace("’", "'") == "i don't know"
        return Told(
            status="refused" if unknown else "finished",
            hint="The model found no answer in the passages." if unknown else None,
            input_tokens=self._usage.prompt_tokens,
            output_tokens=self._usage.completion_tokens,
        )


def _lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    """A line that never ends is no line."""
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from (line.rstrip(b"\r") for line in whole)
        if len(rest) > _LONGEST_LINE:
            raise _unavailable("sent a line without an end", lasting=True)
    if rest.strip():
        yield rest


def _unavailable(
    what: str,
    *,
    hint: str = _HINT,
    lasting: bool = False,
    retry_after_ms: int | None = None,
    **detail: Any,
) -> KbprocError:
    return KbprocError(
        "llm.unavailable",
        f"The endpoint {what}.",
        hint=hint,
        lasting=lasting,
        retry_after_ms=retry_after_ms,
        detail=detail,
    )


def _silent(timeout_s: float, *, connecting: bool) -> KbprocError:
    if connecting:
        return _unavailable("does not answer")
    return KbprocError(
        "operation.timeout",
        f"The endpoint said nothing for {timeout_s:g} seconds.",
        hint="Ask again; where answers begin late, raise llm.timeout_s.",
    )


_HINTS = {
    400: "Check llm.model; the prompt may be longer than the model reads: lower budget_tokens.",
    401: "Check the key: the endpoint does not accept it.",
    403: "Check the key: it may not use this model.",
    404: "Check llm.url and llm.model: the endpoint knows no such thing.",
    429: "The endpoint limits how often it is asked: wait, or raise the limit there.",
}


def _refusal(response: Any) -> KbprocError:
    """What a status other than 200 means; 408, 429 and 5xx may pass."""
    status = response.status_code
    return _unavailable(
        f"answered {status}",
        hint=_HINTS.get(status, "Look into the endpoint's own log."),
        lasting=not (status in (408, 429) or status >= 500),
        retry_after_ms=_wait_ms(response.headers),
        http_status=status,
    )


def _wait_ms(headers: Mapping[str, str]) -> int | None:
    """Retry-After: a number of seconds, or a moment by the clock that the answer tells itself."""
    asked = headers.get("retry-after", "")
    if asked.isdecimal() and len(asked) < 8:
        return int(asked) * 1000
    from email.utils import parsedate_to_datetime  # of no use but here, and slow to import

    try:
        until, now = (parsedate_to_datetime(at) for at in (asked, headers.get("date", "")))
        return max(0, round((until - now).total_seconds() * 1000))
    except (ValueError, TypeError, OverflowError):
        return None
