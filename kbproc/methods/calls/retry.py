"""Makes the one request that helps after an error, from the request that failed."""

from __future__ import annotations

import contextlib
import copy
import re
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.errors import KbprocError, Retry
from kbproc.base.params import MADE_BY_US, as_taken, missing_in
from kbproc.base.suggest import closest
from kbproc.base.values import MOST_MS, NOT_READABLE, decoder

if TYPE_CHECKING:
    from kbproc.methods.calls.method import Method
    from kbproc.methods.calls.registry import Registry

# A longer request is not repeated in the error, nor is one that holds a secret.
_MOST_BYTES = 16 << 10
_SHORTEST_MS = 1000  # the shortest timeout to propose
_SECRETS = re.compile(rb"api_key|password|secret")
_PARAMS = "$.params."
_STEPS = re.compile(r"[^.\[\]]+")
_decode = decoder(dict[str, Any]).decode

Params = dict[str, Any]


def with_retry(
    error: KbprocError, registry: Registry, name: str, raw: bytes | msgspec.Raw
) -> KbprocError:
    """Returns the error with the request to send next, if there is one.

    `name`, `raw`: the method and the params of the request that failed.
    """
    request = bytes(raw)
    if error.retry is None and len(request) <= _MOST_BYTES and not _SECRETS.search(request):
        with contextlib.suppress(*NOT_READABLE):
            params = _decode(request)
            # after a timeout the token tells whether the write was done
            if error.type != "operation.timeout":
                params = _as_sent(params)
            error.retry = _retry(error, registry, name, params)
    return error


def with_token_and_retry(error: KbprocError, name: str, params: Params) -> KbprocError:
    """Returns the error for a write with an unknown outcome: with its token, and the same
    request.
    """
    request = msgspec.json.encode(params)
    is_repeated = len(request) <= _MOST_BYTES and not _SECRETS.search(request)
    longer = _longer(error, params) if error.type == "operation.timeout" else {}
    return KbprocError(
        error.type,
        error.message,
        hint=error.hint,
        field=error.field,
        retry=Retry(method=name, params={**params, **longer}) if is_repeated else None,
        retry_after_ms=error.retry_after_ms,
        detail={**error.detail, "client_token": params["client_token"]},
        lasting=error.retryable is False,
        passing=error.retryable is True,
        ask_again=True,
    )


def _as_sent(params: Params) -> Params:
    """Returns params without the token of an attached process, which is for one request only."""
    is_ours = str(params.get("client_token")).startswith(MADE_BY_US)
    return _without(params, "client_token") if is_ours else params


def _retry(error: KbprocError, registry: Registry, name: str, params: Params) -> Retry | None:
    method = registry.methods.get(name)
    if method is None:
        closest_name = registry.meant(name) if error.type == "input.unknown_method" else None
        return None if closest_name is None else Retry(method=closest_name, params=params)
    better = _better(error, method, params)
    return None if better is None else Retry(method=name, params=better)


def _better(error: KbprocError, method: Method, params: Params) -> Params | None:
    """Returns the params to send next."""
    if error.type == "server.overloaded":
        return params
    if error.type == "operation.timeout":
        return _again(error, method, params)
    if error.type == "resource.plan_stale":
        return {**_without(params, "confirm"), "dry_run": True}
    if error.field == "$.params.cursor" and error.type == "input.invalid_params":
        return _without(params, "cursor")  # the same question, from its first page
    return (
        _renamed(error, method, params)
        or _in_a_list(error, method, params)
        or _corrected(error, method, params)
    )


def _renamed(error: KbprocError, method: Method, params: Params) -> Params | None:
    """Returns params whose only unknown text has the name of the only missing required param."""
    missing = missing_in(method.params, params)
    unknown = [name for name in params if name not in method.params.__struct_fields__]
    if len(missing) != 1 or len(unknown) != 1 or error.field != f"{_PARAMS}{missing[0]}":
        return None
    near = closest(unknown[0], method.params.__struct_fields__)
    if near not in (None, missing[0]):
        return None
    value = as_taken(method.params, missing[0], params[unknown[0]])
    return None if value is None else {**_without(params, unknown[0]), missing[0]: value}


def _in_a_list(error: KbprocError, method: Method, params: Params) -> Params | None:
    """Returns params with the text that the error names in a list, where only a list is taken."""
    name = (error.field or "").removeprefix(_PARAMS)
    if error.type != "input.invalid_params" or not isinstance(params.get(name), str):
        return None
    value = as_taken(method.params, name, params[name])
    return {**params, name: value} if isinstance(value, list) else None


def _again(error: KbprocError, method: Method, params: Params) -> Params | None:
    """Returns params for another try, for a write only if it can't happen twice."""
    if "seq" in error.detail and "after_seq" in method.params.__struct_fields__:
        # a stream continues at its last position
        return {**params, "after_seq": error.detail["seq"]}
    once = method.kind == "read" or method.idempotent or "client_token" in params
    return {**params, **_longer(error, params)} if once else None


def _longer(error: KbprocError, params: Params) -> Params:
    """Returns twice the time, or the time that the error expects, for a request that named one."""
    timeout_ms = params.get("timeout_ms")
    if type(timeout_ms) is not int:
        return {}
    needed_ms = int(error.detail.get("needed_ms", 0))
    longer = max(_SHORTEST_MS, 2 * timeout_ms, needed_ms)
    return {"timeout_ms": min(longer, max(timeout_ms, MOST_MS))}


def _without(params: Params, name: str) -> Params:
    return {key: value for key, value in params.items() if key != name}


def _corrected(error: KbprocError, method: Method, params: Params) -> Params | None:
    """Returns params with the name or value that was probably meant, if exactly one is near."""
    if error.field is None or not error.field.startswith(_PARAMS) or not error.valid_values:
        return None
    corrected = copy.deepcopy(params)
    steps = _STEPS.findall(error.field.removeprefix(_PARAMS))
    if not steps:  # a member without a name, or only dots
        return None
    *way, last = steps
    holder: Any = corrected
    for step in way:
        holder = _member(holder, step)
    valid = [value for value in error.valid_values if isinstance(value, str)]
    value = _member(holder, last)
    if isinstance(holder, dict) and not (not way and last in method.params.__struct_fields__):
        near = closest(last, valid)
        if near is not None and near not in holder and last in holder:
            holder[near] = holder.pop(last)
            return corrected
    near = closest(value, valid) if isinstance(value, str) else None
    if near is None:
        return None
    holder[int(last) if isinstance(holder, list) else last] = near
    return corrected


def _member(holder: Any, step: str) -> Any:
    if isinstance(holder, list) and step.isdecimal() and int(step) < len(holder):
        return holder[int(step)]
    return holder.get(step) if isinstance(holder, dict) else None
