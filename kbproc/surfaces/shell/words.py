"""Rewrites a method's errors for a person who typed the command.

Params become flags and arguments, methods become commands, and a plan's hint names the
command that approves it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kbproc.base.errors import ERRORS
from kbproc.base.patterns import lazy
from kbproc.base.suggest import closest, did_you_mean
from kbproc.base.times import INSTANT_HINT
from kbproc.methods.calls.flags import Described, argv_of, command_of, flags_of, usage_of
from kbproc.surfaces.shell.moments import EXAMPLES

if TYPE_CHECKING:
    from kbproc.base.settings.config import Config
    from kbproc.methods.calls.registry import Names

_PLACE = re.compile(r"\$\.params(?P<path>(?:\.\w+)*)(?P<item>(?:\[[^][]*\](?:\.\w+)*)*)")
_SWITCH = lazy(r"\b(\w+): true\b")
_NO_NUMBER = lazy(r": expected an integer(?: or null)?, got a string\.\Z")
_LONGEST_COMMAND = 2000  # characters; a longer command is not repeated
# The flag to name where several set the same param.
_PREFERRED = {"timeout_ms": "--timeout", "dry_run": "--dry-run"}
_TIMEOUT = "$.params.timeout_ms"
_UNITS = "--timeout counts seconds, --timeout-ms milliseconds."
_TEXTS = ("message", "field", "hint")

Data = dict[str, Any]
Substitute = Callable[[Callable[[re.Match[str]], str], str], str]


class Words:
    """A translation of one method's errors into commands and flags."""

    def __init__(self, registry: Names[Described], method: Described) -> None:
        self._method = method
        flags = {str(flag.param): flag for flag in flags_of(method) if flag.param is not None}
        self._typed = {
            param: param.upper() if flag.positional else _PREFERRED.get(param, flag.name)
            for param, flag in flags.items()
        }
        self._records = {param for param, flag in flags.items() if flag.is_records}
        self._registry = registry

    # Made at their first use, because most answers hold no text to rewrite.

    @cached_property
    def _commands(self) -> Substitute:
        dotted = [name for name in self._registry.methods if "." in name]
        return _any_of(dotted, before=r"(?<!kbproc )(?<![\w./$-])", after=r"(?![\w/]|\.\w)")

    @cached_property
    def _params(self) -> Substitute:
        long = {*(param for param in self._typed if "_" in param), "timeout_ms"}
        return _any_of(long, before=r"(?<![\w$.-])", after=r"(?![\w.])")

    def of(self, data: Data) -> Data:
        """Returns the error's data with its texts rewritten."""
        if (data["type"], data.get("field")) == ("input.invalid_params", _TIMEOUT):
            message = data["message"].replace(_TIMEOUT, "--timeout-ms")
            data = {**data, "message": message, "field": "--timeout-ms", "hint": _UNITS}
        worded = {**data, "message": self.text(data["message"]), "hint": self.text(data["hint"])}
        if data["type"] == "input.invalid_params":
            if data["message"].endswith(" is required."):
                worded |= self._missing(data["field"])
            elif data["hint"] == ERRORS[data["type"]].hint:
                worded["hint"] = f"See {command_of(self._method)} --help."
        if data["hint"] == INSTANT_HINT:
            worded["hint"] = f"{INSTANT_HINT} Words are understood, too: {EXAMPLES}."
        if "field" in data:
            worded["field"] = _PLACE.sub(self._place, data["field"])
        if any("field" in failure for failure in data["detail"].get("failures", ())):
            failures = [self._of_failure(failure) for failure in data["detail"]["failures"]]
            worded["detail"] = {**data["detail"], "failures": failures}
        return worded

    def _of_failure(self, failure: Data) -> Data:
        """Returns one item's failure with its texts rewritten."""
        return {**failure, **{name: self.text(failure[name]) for name in _TEXTS if name in failure}}

    def of_meta(self, meta: Data) -> Data:
        """Returns an answer's meta with its texts rewritten."""
        worded = dict(meta)
        if "hint" in meta:
            worded["hint"] = self.text(meta["hint"])
        if "notice" in meta:
            worded["notice"] = [self.text(line) for line in meta["notice"]]
        return worded

    def text(self, text: str) -> str:
        text = _NO_NUMBER.sub(" takes a whole number.", _PLACE.sub(self._place, text))
        text = self._commands(lambda match: f"kbproc {self._short(match[0])}", text)
        text = _SWITCH.sub(lambda match: self._typed.get(match[1], match[0]), text)
        return self._params(lambda match: self._typed.get(match[0], "--timeout"), text)

    def _short(self, method: str) -> str:
        """Returns the command as the docs write it: add for doc.ingest."""
        return self._aliases.get(method) or method.replace(".", " ")

    @cached_property
    def _aliases(self) -> dict[str, str]:
        return {method: alias for alias, method in self._registry.aliases.items()}

    def _place(self, match: re.Match[str]) -> str:
        """Returns the flag or argument of a param, or of the param that holds the member.

        For a list of objects, the item and its member follow.
        """
        steps = match["path"].split(".")[1:]
        for count in range(len(steps), 0, -1):
            typed = self._typed.get(".".join(steps[:count]))
            if typed is not None:
                return typed + match["item"] * (steps[0] in self._records)
        return ".".join(steps) or command_of(self._method)

    def _missing(self, field: str) -> Data:
        typed = _PLACE.sub(self._place, field)
        article = "an" if typed.lstrip("-")[:1].lower() in "aeio" else "a"
        command = command_of(self._method)
        needs = f"{command.removeprefix('kbproc ')} needs {article} {typed}."
        return {"message": needs, "hint": f"{usage_of(self._method)}. See {command} --help."}


def _any_of(names: Iterable[str], *, before: str, after: str) -> Substitute:
    longest_first = sorted(names, key=len, reverse=True)
    pattern = before + "(?:" + "|".join(map(re.escape, longest_first)) + ")" + after
    return re.compile(pattern).sub


def unknown_kb(data: Data, slug: Any, config: Config) -> str | None:
    """Returns the hint for a missing knowledge base; None for any other error."""
    if (data["type"], data.get("field")) != ("resource.not_found", "$.params.kb"):
        return None
    near = closest(str(slug), data.get("valid_values", []))
    if near is not None:
        return f"{did_you_mean(near)}See kbproc kb list."
    origin = config.origins.get("kb")
    if origin is not None and origin.level == "link":
        return f"The link {origin.name} names it: kbproc link --create makes it."
    return f"See kbproc kb list, or make it: kbproc kb create {slug}."


def approval(method: Described, params: Data, plan_hash: str, again: list[str]) -> str:
    """Returns a hint with the command by which a person approves a plan."""
    line = shlex.join([*argv_of(method, {**params, "confirm": plan_hash}), *again])
    if len(line) > _LONGEST_COMMAND:
        line = f"the same command with --confirm {plan_hash}"
    return f"A person who approves of this plan runs: {line}"
