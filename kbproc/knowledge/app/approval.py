"""Tells whether the model that a store's settings name may be used."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from kbproc.base.errors import KbprocError
from kbproc.base.settings.trust import Trust
from kbproc.engine.store.folder import leads_to


def approval_problem(store: Path, settings: Any, trust: Trust) -> KbprocError | None:
    """Returns the reason why the store's model is not used; None for an approved one.

    The author of the store may have chosen an endpoint to receive the texts.
    """
    named = leads_to(settings)
    if named is None or trust.has_model(store, settings):
        return None
    what, used, so = "model", "loaded", "you trust the author of its files"
    if "url" in settings:
        what, used, so = "endpoint", "called", "your texts may be sent there"
    return KbprocError(
        "model.unavailable",
        f"The store's settings name the {what} {named}; as they are you have not approved them: it "
        f"is not {used}.",
        hint=f"If {so}: kbproc link --trust --store {shlex.quote(str(store))}, then open the store "
        "again. Until then only words are searched.",
        lasting=True,
    )
