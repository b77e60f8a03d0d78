"""Agents: who may ask, and what each may see, do and keep.

Owns: rows as Agent structs, the not-found answers, where an agent's notes lie, what a
new or changed description must meet.
Refuses to know: how a request is narrowed to its agent (access.py), quotas' refusals
(quotas.py), and notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from kbproc.agents.folder import notes_folder
from kbproc.agents.quotas import QUOTAS, quotas_of
from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.layout import Record
from kbproc.base.suggest import nearest
from kbproc.base.values import SLUG, KbSlug, canonical
from kbproc.base.wording import change
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


def agent_of(store: SeenStore, row: AgentRow) -> Agent:
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


_TEXTS = ("description", "instructions")  # empty where none is given
_SIDES = ("description", "kbs", "notes_folder", "scopes", "instructions")


def changes(before: Agent | None, after: Agent) -> list[str]:
    """For a plan: each side by name, quotas one by one; `before` None: it is new."""
    sides = {name: getattr(before, name, "" if name in _TEXTS else None) for name in _SIDES}
    told = [said for name in _SIDES for said in change(name, sides[name], getattr(after, name))]
    had, has = {} if before is None else before.quotas.given(), after.quotas.given()
    return told + [
        said for name in {**had, **has} for said in change(name, had.get(name), has.get(name))
    ]


def target_of(row: AgentRow) -> Target:
    return Target(kind="agent", id=row.slug, name=row.slug, revision=row.revision)


def require(
    queries: Queries, slug: str, *, only: AgentRow | None = None, field: str = "$.params.slug"
) -> AgentRow:
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
            field=field,
            valid_values=near,
            hint="agent.create makes a new one of that name.",
            detail={"deleted_at": row.deleted_at},
        )
    raise KbprocError(
        "resource.not_found",
        f"There is no agent {slug!r}.",
        field=field,
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
