"""The table of all errors, the exception that carries one, and the findings of checks.

Each type has an exit code, a JSON-RPC code, a meaning and a default hint.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

DOCS = "docs/errors.md"


class ErrorType(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table.

    `code` is JSON-RPC's own where the protocol has one, else exit × 100 + n,
    which stays clear of the reserved range −32768…−32000.
    `retryable`: True, same request may work later; False, it never will as it
    stands; None, it depends on `detail`.
    """

    type: str
    exit: int
    code: int
    when: str
    hint: str
    retryable: bool | None = False

    @property
    def doc_url(self) -> str:
        return f"{DOCS}#{self.type.replace('.', '')}"


def _row(
    type: str, exit: int, code: int, when: str, hint: str, retryable: bool | None = False
) -> ErrorType:
    return ErrorType(type=type, exit=exit, code=code, when=when, hint=hint, retryable=retryable)


ERRORS: dict[str, ErrorType] = {
    row.type: row
    for row in (
        _row(
            "input.invalid_json",
            1,
            -32700,
            "the line is not one JSON value in UTF-8",
            "Send one JSON-RPC 2.0 message a line, encoded as UTF-8, with no newline inside.",
        ),
        _row(
            "input.invalid_request",
            1,
            -32600,
            "the JSON is not a JSON-RPC 2.0 request",
            'Send {"jsonrpc":"2.0","id":1,"method":"ping","params":{}}.',
        ),
        _row(
            "input.unknown_method",
            1,
            -32601,
            "no method has this name",
            "Call describe for the list of methods.",
        ),
        _row(
            "input.invalid_params",
            1,
            -32602,
            "a parameter is missing, unknown, of the wrong type or out of range",
            "Correct the field that is named and send the request again.",
        ),
        _row(
            "input.too_large",
            1,
            101,
            "a line, text or file is over its limit",
            "Send it in smaller parts.",
        ),
        _row(
            "input.unsupported_type",
            1,
            102,
            "no parser reads this kind of file",
            "Convert it to a format that `kbproc docs files` lists, such as PDF, DOCX, XLSX or "
            "Markdown.",
        ),
        _row(
            "knowledge.cycle",
            1,
            103,
            "superseding would close a circle",
            "Supersede in one direction only: from the older entry to the newer.",
        ),
        _row(
            "store.corrupt",
            2,
            201,
            "the log or a blob does not verify",
            "Run kbproc doctor: it names what is damaged. Then run kbproc doctor --repair, which "
            "keeps the damaged original aside, or restore a backup.",
        ),
        _row(
            "store.incompatible",
            2,
            202,
            "the store was written by a newer format, or this platform is not supported",
            "Upgrade kbproc; this store was written by a newer one.",
        ),
        _row(
            "store.io",
            2,
            203,
            "the disk refused a read or a write",
            "Free space or check the disk, then send the request again.",
            True,
        ),
        _row(
            "store.locked",
            2,
            204,
            "another process has the store open, and this one could not attach to it",
            "Ask again: processes of one user share an open store. If the error stays, end the "
            "process that has the store open; the message names it where it is known.",
            True,
        ),
        _row(
            "model.unavailable",
            2,
            205,
            "the embedding model or the cross-encoder can't be loaded or reached",
            "Run kbproc doctor; keyword search (mode fts) works without a model.",
            None,
        ),
        _row(
            "llm.unavailable",
            2,
            206,
            "the configured LLM endpoint does not answer",
            "Check llm.url, or unset it for extractive answers.",
            True,
        ),
        _row(
            "network.failed",
            2,
            207,
            "a URL could not be fetched",
            "Check the address and the network, then try again.",
            True,
        ),
        _row(
            "operation.failed",
            2,
            208,
            "what was waited for has failed",
            "See detail for what failed and why.",
        ),
        _row(
            "internal.error",
            2,
            -32603,
            "a fault in kbproc itself",
            "Its commits are kept; the log on stderr says more. Please report it.",
            None,
        ),
        _row(
            "operation.partial",
            3,
            301,
            "some items worked, others failed",
            "The failures say why; everything else was done and is kept.",
            None,
        ),
        _row(
            "operation.timeout",
            4,
            401,
            "timeout_ms passed first",
            "Ask again with a longer timeout_ms.",
            True,
        ),
        _row(
            "resource.not_found",
            5,
            501,
            "no such document, chunk, knowledge base, …",
            "List what exists and use one of those.",
        ),
        _row("profile.not_found", 5, 502, "no profile has this name", "See kbproc profile list."),
        _row(
            "auth.insufficient_scope",
            6,
            601,
            "the connection's scopes do not allow this",
            "Ask the person who started kbproc for the scope that the message names.",
        ),
        _row(
            "auth.not_owner",
            6,
            602,
            "the entry belongs to another actor",
            "Only its owner, or a holder of knowledge:write_others, may do this.",
        ),
        _row(
            "network.blocked",
            6,
            603,
            "the address is private, local or not http(s)",
            "Only public http(s) addresses are fetched unless private ones are allowed.",
        ),
        _row(
            "path.outside_root",
            6,
            604,
            "the path lies outside the allowed root",
            "Use a path below the root, or start kbproc with another --root.",
        ),
        _row(
            "resource.already_exists",
            7,
            701,
            "the name is taken",
            "Choose another name, or update what exists.",
        ),
        _row(
            "resource.conflict",
            7,
            702,
            "the revision or the client_token does not match",
            "Read the current state, then decide again.",
        ),
        _row(
            "resource.plan_stale",
            7,
            703,
            "what the plan was made for has changed",
            "Ask for a new plan with dry_run, and have that one confirmed.",
        ),
        _row(
            "quota.exceeded",
            8,
            801,
            "a quota is used up",
            "Delete what is no longer needed, or ask for a larger quota.",
        ),
        _row(
            "server.overloaded",
            8,
            802,
            "too many requests in flight on this connection",
            "Wait for an answer, then send the request again.",
            True,
        ),
        _row(
            "operation.cancelled",
            9,
            901,
            "the client cancelled the request",
            "See detail for what had been committed before.",
            None,
        ),
        _row(
            "input.confirmation_required",
            10,
            1001,
            "a destructive request came without its confirmation",
            "Show the plan to a person: only a person can approve it.",
        ),
    )
}

# How pages and help write `retryable`.
RETRYABLE_WORDS = {True: "yes", False: "no", None: "it depends, see detail"}

EXIT_CODES: dict[int, str] = {
    0: "success",
    1: "the caller's mistake",
    2: "the environment's or kbproc's own",
    3: "partial: some items failed",
    4: "timeout",
    5: "not found",
    6: "not allowed",
    7: "conflict",
    8: "limits",
    9: "cancelled",
    10: "needs a person",
    130: "interrupted (SIGINT)",
}


class Retry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request that would succeed. The shell adds `argv`."""

    method: str
    params: dict[str, Any]
    argv: list[str] | None = None


class Risk(msgspec.Struct, frozen=True, kw_only=True):
    """The risk of a request: `level` is low, medium, high or bulk; `action` is noun.verb."""

    level: str
    action: str


# The result of one check of a store or an agent. A docstring would become a part of the schemas.
class Finding(msgspec.Struct, frozen=True):
    name: str
    status: Literal["pass", "warn", "fail"]
    message: str
    hint: str | None = None


_LASTING = frozenset(
    {
        errno.EACCES,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)


def is_lasting(error: OSError) -> bool:
    """Returns whether the error will recur until something in the file system is changed."""
    return error.errno in _LASTING


# Ends the hint of an error that says `ask_again`; MCP has its own words for it.
ASK_AGAIN = "Then ask again, with detail.client_token if it is there: so a write is done once."


class KbprocError(Exception):
    """A typed failure; `type` is a row of ERRORS.

    `field` is a JSON path (`$.params.limit`), `valid_values` are the nearest valid ones, and
    `detail` has the members that the type promises.
    """

    def __init__(
        self,
        type: str,
        message: str,
        *,
        hint: str | None = None,
        field: str | None = None,
        valid_values: Iterable[Any] | None = None,
        retry: Retry | None = None,
        retry_after_ms: int | None = None,
        risk: Risk | None = None,
        plan: Any = None,
        seq: int | None = None,
        detail: dict[str, Any] | None = None,
        lasting: bool = False,
        passing: bool = False,
        ask_again: bool = False,
    ) -> None:
        """`lasting`: no later try will succeed, though others of this type may. `passing`: a later
        try may succeed, though others of this type won't. `ask_again`: the store's owner may still
        do the request; the same one, a write with its token, then has the same outcome.
        """
        super().__init__(message)
        self.row = ERRORS[type]
        self.retryable = passing or (False if lasting else self.row.retryable)
        self.type = type
        self.message = message
        self.hint = hint or self.row.hint
        self.field = field
        self.valid_values = None if valid_values is None else list(valid_values)
        self.retry = retry
        self.retry_after_ms = retry_after_ms
        self.risk = risk
        self.plan = plan
        self.seq = seq
        self.detail = detail or {}
        self.ask_again = ask_again


def bare(error: KbprocError) -> KbprocError:
    """Returns the error without its tracebacks, which would keep the raising frames' objects
    alive.
    """
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error
