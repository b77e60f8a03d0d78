"""Runs hooks as clients do: as processes with an event on stdin."""

from __future__ import annotations

import json
import os
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

from kbproc.base.settings import profiles
from kbproc.base.settings.config import trust_of
from kbproc.engine.store.hook_log import failures
from tests.kit.patience import PATIENCE
from tests.kit.start import REPO, start

# Long enough for a loaded machine; tests of the deadline name their own.
PATIENT = ("--deadline-ms", "60000")


class Answered(NamedTuple):
    code: int
    out: bytes
    err: bytes

    @property
    def context(self) -> str:
        """Returns the context that the client adds to the prompt; "" for an empty answer."""
        if not self.out:
            return ""
        context: str = json.loads(self.out)["hookSpecificOutput"]["additionalContext"]
        return context


class Project:
    """A folder that is linked to a store, and the hooks of a client that works there."""

    def __init__(self, folder: Path, store: Path | None = None, kb: str | None = None) -> None:
        self.home = folder / "home"
        self.folder = folder / "project"
        self.store = store or folder / "store"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.env = {"HOME": str(self.home), "PYTHONPATH": str(REPO), "PATH": os.environ["PATH"]}
        settings = {"store": str(self.store), **({} if kb is None else {"kb": kb})}
        profiles.link(self.folder, settings, trust_of(self.env))

    def hook(self, event: str, *flags: str, stdin: bytes | None = None, **members: Any) -> Answered:
        """Runs a hook. `members`: of the client's event, which `stdin` replaces."""
        event_members = {"session_id": "one", "cwd": str(self.folder), **members}
        data = json.dumps(event_members).encode() if stdin is None else stdin
        words = flags if "--deadline-ms" in flags else (*flags, *PATIENT)
        argv = ["-m", "kbproc", "hook", event, *words]
        process = start(argv, cwd=self.folder, env=self.env, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        out, err = process.communicate(data, timeout=PATIENCE)
        return Answered(process.returncode, out, err)

    def ask(self, prompt: str, *flags: str, **members: Any) -> Answered:
        return self.hook("prompt", *flags, prompt=prompt, **members)

    def problems(self) -> list[str]:
        """Returns the problems in the store's hook log."""
        return [failure.problem for failure in failures(self.store)]
