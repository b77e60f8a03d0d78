"""Agents: who may ask, and what each may see, do and keep.

Owns: rows as Agent structs, the not-found answers, where an agent's notes lie, what a
new or changed description must meet.
Refuses to know: how a request is narrowed to its agent (sight.py), quotas' refusals
(quotas.py), and notes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from kbproc.agents.quotas import QUOTAS, quotas_of
from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.layout import Record
from kbproc.base.suggest import nearest
from kbproc.base.values import SLUG, KbSlug, canonical
from kbproc.events.agent import AgentWritten
from kbproc.store.decision import Target
from kbproc.store.state import SeenStore
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import AgentRow

# Names that the log gives to others: a person, a note's file, the program itself.
RESERVED = {
    "user": "whoever acts without a name is called so",
    "file": "a person's edit of a note's file is attributed to it",
    "kbproc": "the program's own records bear it",
}

Limit = Annotated[int, Meta(ge=0, le=10**9)]


class Quotas(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How much it may keep; what is left out is without limit."""

    knowledge_stored: (
        Annotated[Limit, Meta(description="most knowledge entries that it has stored")] | None
    ) = None
    notes_stored: Annotated[Limit, Meta(description="most notes in its folder")] | None = None

    def given(self) -> dict[str, int]:
        return {name: n for name in QUOTAS if (n := getattr(self, name)) is not None}


AgentSlug = Annotated[
    str,
    Meta(pattern=SLUG, description="agent, by slug: 2–64 lower-case letters, digits and hyphens"),
]
Description = Annotated[str, Meta(max_length=1000, description="what it is for")]
KbList = Annotated[
    list[KbSlug],
    Meta(max_length=1000, description="knowledge bases that it sees; all if never given"),
]
Folder = Annotated[
    str,
    Meta(
        min_length=1, max_length=4096, description="folder of its notes; STORE/notes/SLUG otherwise"
    ),
]
Scope = Annotated[str, Meta(min_length=1, max_length=100, description="such as doc:read")]
Scopes = Annotated[
    list[Scope], Meta(max_length=100, description="what it may do; all if never given")
]
Instructions = Annotated[
    str, Meta(max_length=32_000, description="how it is to answer, in its own words")
]
Limits = Annotated[Quotas, Meta(description="how much it may keep")]
OpenedSide = Literal["kbs", "scopes", "notes_folder", "knowledge_stored", "notes_stored"]
Opened = Annotated[
    list[OpenedSide],
    Meta(max_length=5, description="what is to be as if never given: all, the default, no limit"),
]


class Agent(Struct, kw_only=True, frozen=True):
    """`kbs` and `scopes` are null where all are open; `notes_folder` is where its notes lie."""

    slug: str
    description: str
    kbs: list[str] | None
    notes_folder: str
    scopes: list[str] | None
    quotas: Quotas
    instructions: str
    revision: int
    created_at: str
    updated_at: str


def default_folder(store: SeenStore, slug: str) -> Path:
    return store.origin / "notes" / slug


def notes_folder(store: SeenStore, row: AgentRow) -> Path:
    """Where the agent's notes lie: STORE/notes/SLUG unless it names another folder."""
    return default_folder(store, row.slug) if row.folder is None else Path(row.folder)


def shown(store: SeenStore, row: AgentRow) -> Agent:
    return Agent(
        slug=row.slug,
        description=row.description,
        kbs=row.kbs,
        notes_folder=paths.printable(notes_folder(store, row)),
        scopes=row.scopes,
        quotas=Quotas(**quotas_of(row)),
        instructions=row.instructions,
        revision=row.revision,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def in_words(agent: dict[str, Any]) -> dict[str, Any]:
    """For people, who must tell a side that is open from an empty one."""
    return {**agent, **{name: _side(agent[name]) for name in ("kbs", "scopes", "quotas")}}


def _side(value: Any) -> Any:
    if value is None:
        return "all"
    given = value.values() if isinstance(value, dict) else value
    return value if any(item is not None for item in given) else "none"


def as_record(agent: dict[str, Any], params: dict[str, Any]) -> Record:
    return Record(members=in_words(agent))


def target_of(row: AgentRow) -> Target:
    return Target(kind="agent", id=row.slug, name=row.slug, revision=row.revision)


def require(queries: Queries, slug: str, *, only: AgentRow | None = None) -> AgentRow:
    """The live agent. `only`: the one that asks, which learns of no other.

    Raises resource.not_found with the nearest names.
    """
    row = queries.agent(slug) if only is None or only.slug == slug else None
    if row is not None and row.deleted_at is None:
        return row
    known = [only.slug] if only is not None else [one.slug for one in queries.agents()]
    near = nearest(slug, known)
    if row is not None and only is None:
        raise KbprocError(
            "resource.not_found",
            f"Agent {slug!r} was deleted at {row.deleted_at}.",
            field="$.params.slug",
            valid_values=near,
            hint="agent.create makes a new one of that name.",
            detail={"deleted_at": row.deleted_at},
        )
    raise KbprocError(
        "resource.not_found",
        f"There is no agent {slug!r}.",
        field="$.params.slug",
        valid_values=near,
        hint="See agent.list for the agents there are.",
    )


# ------------------------------------------------------------------ what it must meet


def check_slug(slug: str, actor: str) -> None:
    """Raises input.invalid_params for a name that stands for somebody else in the log."""
    why = RESERVED.get(slug)
    if slug == actor:
        why = "this very process acts under it and would be bound to the agent"
    if why is not None:
        raise KbprocError(
            "input.invalid_params",
            f"No agent can be called {slug!r}: {why}.",
            field="$.params.slug",
            hint="Choose another slug, such as what the agent works on.",
        )


def refuse_taken(queries: Queries, slug: str) -> None:
    """Raises resource.already_exists."""
    row = queries.agent(slug)
    if row is not None and row.deleted_at is None:
        raise KbprocError(
            "resource.already_exists",
            f"The agent {slug!r} exists already.",
            field="$.params.slug",
            hint="Use it as it is, change it with agent.update, or choose another slug.",
        )


def check_scopes(scopes: Sequence[str] | None, known: Sequence[str]) -> list[str] | None:
    """Without doubles. Raises input.invalid_params with the nearest scopes."""
    if scopes is None:
        return None
    for index, scope in enumerate(scopes):
        if scope not in known:
            raise KbprocError(
                "input.invalid_params",
                f"There is no scope {scope!r}.",
                field=f"$.params.scopes[{index}]",
                valid_values=nearest(scope, known, most=20),
            )
    return list(dict.fromkeys(scopes))


def check_kbs(queries: Queries, kbs: Sequence[str]) -> list[str]:
    """Without doubles. Raises resource.not_found with the nearest names."""
    known = queries.kb_slugs()
    for index, slug in enumerate(kbs):
        if slug not in known:
            near = nearest(slug, known)
            raise KbprocError(
                "resource.not_found",
                f"There is no knowledge base {slug!r}.",
                field=f"$.params.kbs[{index}]",
                valid_values=near,
                hint="Create it first: kb.create.",
            )
    return list(dict.fromkeys(kbs))


def check_revision(row: AgentRow, expected: int | None) -> None:
    """Raises resource.conflict with the current revision."""
    if expected not in {None, row.revision}:
        raise KbprocError(
            "resource.conflict",
            f"{row.slug} is at revision {row.revision}, not {expected}.",
            field="$.params.expected_revision",
            hint="Read the agent again and decide anew.",
            detail={"revision": row.revision},
        )


_FIELD = "$.params.notes_folder"


def located(folder: str | None, *, cwd: Path, root: Path | None) -> Path | None:
    """Raises input.invalid_params, path.outside_root."""
    return None if folder is None else paths.locate(folder, cwd=cwd, root=root, field=_FIELD)


def placed(store: SeenStore, slug: str, folder: Path | None) -> str | None:
    """What the log says of `folder`, which is absolute and without links; None: the default.

    Raises input.invalid_params for the store's own files, resource.not_found where not
    even the folder above it exists.
    """
    own = store.origin.resolve()
    if folder is None or folder == own / "notes" / slug:
        return None
    if folder == own or folder.is_relative_to(own):
        raise KbprocError(
            "input.invalid_params",
            f"{paths.printable(folder)} lies among the store's own files.",
            field=_FIELD,
            hint=f"Leave it out for {paths.printable(own / 'notes' / slug)}.",
        )
    if paths.printable(folder) != str(folder):
        raise KbprocError(
            "input.invalid_params",
            f"The name {paths.printable(folder)} is not UTF-8.",
            field=_FIELD,
        )
    if folder.exists() and not folder.is_dir():
        raise KbprocError(
            "input.invalid_params",
            f"{folder} is no folder.",
            field=_FIELD,
            hint="Name a folder, or one that can be made.",
        )
    if not folder.parent.is_dir():
        raise KbprocError(
            "resource.not_found",
            f"There is no folder {folder.parent}.",
            field=_FIELD,
            hint="Make that folder first, or name another.",
        )
    return str(folder)


def check_folder(store: SeenStore, folder: Path, slug: str, others: Iterable[AgentRow]) -> None:
    """Raises resource.already_exists if another agent keeps its notes there.

    By name alone: a folder on a file system that hangs must hold up nobody else's. What
    is kept of a folder that was named has no links; the default one may have become one.
    """
    notes = store.origin.resolve() / "notes"
    real = os.path.realpath(folder) if folder == default_folder(store, slug) else str(folder)
    for other in others:
        if other.slug != slug and real == (other.folder or str(notes / other.slug)):
            raise _taken(folder, other.slug)


def _taken(folder: Path, by: str) -> KbprocError:
    return KbprocError(
        "resource.already_exists",
        f"{paths.printable(folder)} is the notes folder of {by}.",
        field=_FIELD,
        hint="Each agent needs a folder of its own: name another.",
    )


def sharing(store: SeenStore, folder: Path, slug: str, others: Iterable[AgentRow]) -> str | None:
    """The other agent that keeps its notes there, whatever the two call it."""
    for other in others:
        if other.slug != slug and _same(folder, notes_folder(store, other)):
            return other.slug
    return None


def _same(one: Path, other: Path) -> bool:
    """By name, or by what is there: a file system may tell no case, or show a folder twice."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return one.samefile(other)
    except OSError:
        return False


def make_folder(store: SeenStore, folder: Path) -> None:
    """For its user alone. Only within the store folders above it are made. Raises store.io."""
    try:
        if folder.parent == store.origin / "notes":
            folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise KbprocError(
            "store.io",
            f"{paths.printable(folder)} could not be made: {error.strerror}.",
            field=_FIELD,
        ) from error


def folder_made(store: SeenStore, queries: Queries, row: AgentRow) -> Callable[[], None]:
    """What makes the agent's folder. Raises resource.already_exists if another agent has it."""
    folder = notes_folder(store, row)
    check_folder(store, folder, row.slug, queries.agents())
    return lambda: make_folder(store, folder)


# ------------------------------------------------------------------ what it becomes


def event_of(row: AgentRow) -> AgentWritten:
    """What would write it again as it is, at its next revision."""
    return AgentWritten(
        slug=row.slug,
        revision=row.revision + 1,
        description=row.description,
        kbs=row.kbs,
        folder=row.folder,
        scopes=row.scopes,
        quotas=quotas_of(row),
        instructions=row.instructions,
    )


def row_of(event: AgentWritten, *, created_at: str, now: str) -> AgentRow:
    """The agent as it will be once `event` is committed."""

    return AgentRow(
        slug=event.slug,
        description=event.description,
        kbs=event.kbs,
        folder=event.folder,
        scopes=event.scopes,
        quotas=canonical(event.quotas).decode(),
        instructions=event.instructions,
        revision=event.revision,
        created_at=created_at,
        updated_at=now,
        deleted_at=None,
    )
