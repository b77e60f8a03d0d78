"""Errors of a method in the words of the command line.

Owns: params as the flags and arguments that can be typed, methods as commands, how a person
approves a plan.
Refuses to know: what went wrong, and how an error is printed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from typing import Any

from kbproc.base.errors import ERRORS
from kbproc.base.suggest import closest, did_you_mean
from kbproc.calls.flags import flags_of
from kbproc.calls.method import Method
from kbproc.calls.registry import Registry
from kbproc.calls.typed import argv_of, command_of, usage_of
from kbproc.settings.config import Config

_PLACE = re.compile(r"\$\.params(?P<path>(?:\.\w+)*)(?P<item>(?:\[[^]]*\](?:\.\w+)*)*)")
_SWITCH = re.compile(r"\b(\w+): true\b")
_LONGEST_COMMAND = 2000  # characters: a longer one is not said again
# Which flag is meant to be typed, of those that say the same.
_INSTEAD = {"timeout_ms": "--timeout", "dry_run": "--dry-run"}
_SAID = ("message", "field", "hint")

Data = dict[str, Any]


class Words:
    """The words for one method's errors."""

    def __init__(self, registry: Registry, method: Method) -> None:
        self._method = method
        flags = {str(flag.param): flag for flag in flags_of(method) if flag.param is not None}
        self._typed = {
            param: param.upper() if flag.positional else _INSTEAD.get(param, flag.name)
            for param, flag in flags.items()
        }
        self._records = {param for param, flag in flags.items() if flag.is_records}
        dotted = [name for name in registry.methods if "." in name]
        self._commands = _any_of(
            dotted, before=r"(?<!kbproc )(?<![\w./$-])", after=r"(?![\w/]|\.\w)"
        )
        long = {*(param for param in self._typed if "_" in param), "timeout_ms"}
        self._params = _any_of(long, before=r"(?<![\w$.-])", after=r"(?![\w.])")

    def of(self, data: Data) -> Data:
        """The error's data, as a person reads it who typed the command."""
        said = {**data, "message": self.said(data["message"]), "hint": self.said(data["hint"])}
        if data["type"] == "input.invalid_params":
            if data["message"].endswith(" is required."):
                said |= self._missing(data["field"])
            elif data["hint"] == ERRORS[data["type"]].hint:
                said["hint"] = f"See {command_of(self._method)} --help."
        if "field" in data:
            said["field"] = _PLACE.sub(self._place, data["field"])
        if any("field" in one for one in data["detail"].get("failures", ())):
            failures = [self._of_failure(one) for one in data["detail"]["failures"]]
            said["detail"] = {**data["detail"], "failures": failures}
        return said

    def _of_failure(self, failure: Data) -> Data:
        """What kept one of many from being done."""
        return {**failure, **{name: self.said(failure[name]) for name in _SAID if name in failure}}

    def of_meta(self, meta: Data) -> Data:
        """What an answer says of itself, likewise."""
        said = dict(meta)
        if "hint" in meta:
            said["hint"] = self.said(meta["hint"])
        if "notice" in meta:
            said["notice"] = [self.said(line) for line in meta["notice"]]
        return said

    def said(self, text: str) -> str:
        text = _PLACE.sub(self._place, text)
        text = self._commands(lambda match: f"kbproc {match[0].replace('.', ' ')}", text)
        text = _SWITCH.sub(lambda match: self._typed.get(match[1], match[0]), text)
        return self._params(lambda match: self._typed.get(match[0], "--timeout"), text)

    def _place(self, match: re.Match[str]) -> str:
        """The flag or argument; of a member that is none the one that holds it.

        Of a list of objects also which one, and which of its members.
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


def _any_of(
    names: Iterable[str], *, before: str, after: str
) -> Callable[[Callable[[re.Match[str]], str], str], str]:
    longest_first = sorted(names, key=len, reverse=True)
    pattern = before + "(?:" + "|".join(map(re.escape, longest_first)) + ")" + after
    return re.compile(pattern).sub


def unknown_kb(data: Data, slug: Any, config: Config) -> str | None:
    """The hint where a knowledge base is not there; None for any other error."""
    if (data["type"], data.get("field")) != ("resource.not_found", "$.params.kb"):
        return None
    near = closest(str(slug), data.get("valid_values", []))
    if near is not None:
        return f"{did_you_mean(near)}See kbproc kb list."
    origin = config.origins.get("kb")
    if origin is not None and origin.level == "link":
        return f"The link {origin.name} names it: kbproc link --create makes it."
    return f"See kbproc kb list, or make it: kbproc kb create {slug}."


def approval(method: Method, params: Data, plan_hash: str, again: list[str]) -> str:
    """How a person approves a plan."""
    line = shlex.join([*argv_of(method, {**params, "confirm": plan_hash}), *again])
    if len(line) > _LONGEST_COMMAND:
        line = f"the same command with --confirm {plan_hash}"
    return f"A person who approves of this plan runs: {line}"
