"""The flags of a hook: what each can be, and the settings that they lead to."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.host import environment
from kbproc.base.paths import absolute
from kbproc.base.settings import config as settings
from kbproc.base.settings.config import Config, SettingOrigin
from kbproc.engine.events.origin import FOREIGN
from kbproc.surfaces.hooks.deadline import COUNT, RECORD

TOKENS = {"prompt": 500, "session-start": 800, "tool": 200}
LEAST_TOKENS, MOST_TOKENS = 100, 5000
_CHOSEN = frozenset({"flag", "environment", "link"})  # origins of a setting for this very folder
FLAGS = ("--tokens", "--deadline-ms", "--quote", "--store", "--kb", "--agent", "--profile")


class HookOptions(Struct, frozen=True, kw_only=True):
    """The flags of a hook. `quote`: foreign origins whose texts may be quoted.

    `record`: the session is added to the store. `count`: what the hook says is counted.
    """

    event: str
    tokens: int
    quote: tuple[str, ...] = ()
    record: bool = False
    count: bool = False
    store: str | None = None
    kb: str | None = None
    agent: str | None = None
    profile: str | None = None

    def config(self, folder: Path) -> Config:
        """Returns the settings in effect in a folder. Raises the errors of `load`."""
        config = settings.load(environment(), folder=folder, profile=self.profile)
        origins = dict(config.origins)
        for name in ("store", "kb", "agent"):
            if getattr(self, name) is not None:
                origins[name] = SettingOrigin("flag", f"--{name}")
        store = None if self.store is None else absolute(self.store, field="--store")
        return msgspec.structs.replace(
            config,
            store=store or config.store,
            kb=self.kb or config.kb,
            actor=self.agent or config.actor,
            agent_named_by="--agent" if self.agent else config.agent_named_by,
            origins=origins,
        )


def is_chosen(config: Config) -> bool:
    """Returns whether the store or the knowledge base was chosen for this very folder.

    What a person keeps for all folders must not reach the prompts of each of them.
    """
    origins = (config.origins.get(name, settings.DEFAULT) for name in ("store", "kb"))
    return any(origin.level in _CHOSEN for origin in origins)


def options_of(argv: list[str]) -> HookOptions:
    """Returns the options of `EVENT [FLAGS]`. Raises input.invalid_params."""
    event, *rest = argv
    values: dict[str, str] = {}
    words = iter(rest)
    for word in words:
        if word in {RECORD, COUNT}:
            values[word] = "on"
            continue
        name, has_value, value = word.partition("=")
        if name not in FLAGS:
            raise KbprocError("input.invalid_params", f"A hook has no flag {name[:40]!r}.")
        values[name] = value if has_value else next(words, "")
    tokens = values.get("--tokens", str(TOKENS.get(event, 0)))
    if not tokens.isdecimal() or ("--tokens" in values and not _is_fit(int(tokens))):
        message = f"--tokens is {tokens[:40]!r}; it can be {LEAST_TOKENS} to {MOST_TOKENS}."
        raise KbprocError("input.invalid_params", message)
    quote = tuple(filter(None, values.get("--quote", "").split(",")))
    if not set(quote) <= set(FOREIGN):
        message = f"--quote is {values['--quote'][:40]!r}; it can be {','.join(FOREIGN)}."
        raise KbprocError("input.invalid_params", message)
    names = {name: values.get(f"--{name}") or None for name in ("store", "kb", "agent", "profile")}
    return HookOptions(
        event=event,
        tokens=int(tokens),
        quote=quote,
        record=RECORD in values,
        count=COUNT in values,
        **names,
    )


def _is_fit(tokens: int) -> bool:
    return LEAST_TOKENS <= tokens <= MOST_TOKENS
