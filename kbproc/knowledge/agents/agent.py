"""Agents as methods return them, their not-found errors, and the checks of a new description.

An agent is a registered actor, with limits to what it may see, do and store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.layout import LayoutRecord
from kbproc.base.structs import common_members
from kbproc.base.suggest import nearest
from kbproc.base.values import SLUG, KbSlug, canonical
from kbproc.base.wording import change
from kbproc.engine.events.agent import AgentWritten
from kbproc.engine.projections.catalog.rows import AgentRow
from kbproc.engine.store.target import Target
from kbproc.knowledge.agents.folder import notes_folder
from kbproc.knowledge.agents.quotas import QUOTAS, quotas_of

if TYPE_CHECKING:
    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.store.state import SeenStore

# Names that the log gives to other actors: a person, a note's file, the program itself.
RESERVED = {
    "user": "an actor without a name is called so",
    "file": "a person's edit of a note's file is attributed to it",
    "kbproc": "the program's own records bear it",
}

Limit = Annotated[int, Meta(ge=0, le=10**9)]


class Quotas(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How much it may keep; a member that is left out has no limit."""

    knowledge_stored: (
        Annotated[Limit, Meta(description="most knowledge entries that it has stored")] | None
    ) = None
    notes_stored: Annotated[Limit, Meta(description="most notes in its folder")] | None = None

    def limits(self) -> dict[str, int]:
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
    """Returns the agent for people: null, which stands for all, becomes "all", and empty "none"."""
    return {**agent, **{name: _side(agent[name]) for name in ("kbs", "scopes", "quotas")}}


def _side(value: Any) -> Any:
    if value is None:
        return "all"
    items = value.values() if isinstance(value, dict) else value
    return value if any(item is not None for item in items) else "none"


def as_record(agent: dict[str, Any], params: dict[str, Any]) -> LayoutRecord:
    return LayoutRecord(members=in_words(agent))


_TEXTS = ("description", "instructions")  # empty where none is given
_SIDES = ("description", "kbs", "notes_folder", "scopes", "instructions")


def changes(before: Agent | None, after: Agent) -> list[str]:
    """Returns the changes as lines of a plan, quotas one by one; `before` None: it is new."""
    old_sides = {name: getattr(before, name, "" if name in _TEXTS else None) for name in _SIDES}
    lines = [
        line for name in _SIDES for line in change(name, old_sides[name], getattr(after, name))
    ]
    old_quotas, new_quotas = {} if before is None else before.quotas.limits(), after.quotas.limits()
    return lines + [
        line
        for name in {**old_quotas, **new_quotas}
        for line in change(name, old_quotas.get(name), new_quotas.get(name))
    ]


def target_of(row: AgentRow) -> Target:
    return Target(kind="agent", id=row.slug, name=row.slug, revision=row.revision)


def require(
    queries: Queries, slug: str, *, only: AgentRow | None = None, field: str = "$.params.slug"
) -> AgentRow:
    """Returns the live agent. `only`: the agent that asks, which may see no other.

    Raises resource.not_found with the nearest names.
    """
    row = queries.agent(slug) if only is None or only.slug == slug else None
    if row is not None and row.deleted_at is None:
        return row
    slugs = [only.slug] if only is not None else [agent.slug for agent in queries.agents()]
    near = nearest(slug, slugs)
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


# ------------------------------------------------------------------ checks


def check_slug(slug: str, actor: str) -> None:
    """Raises input.invalid_params for a name that stands for another actor in the log."""
    reason = RESERVED.get(slug)
    if slug == actor:
        reason = "this very process acts under it and would be bound to the agent"
    if reason is not None:
        raise KbprocError(
            "input.invalid_params",
            f"No agent can be called {slug!r}: {reason}.",
            field="$.params.slug",
            hint="Choose another slug, such as what the agent works on.",
        )


def refuse_taken(queries: Queries, slug: str) -> None:
    """Raises resource.already_exists if a live agent has the slug."""
    row = queries.agent(slug)
    if row is not None and row.deleted_at is None:
        raise KbprocError(
            "resource.already_exists",
            f"The agent {slug!r} exists already.",
            field="$.params.slug",
            hint="Use it as it is, change it with agent.update, or choose another slug.",
        )


def check_scopes(scopes: Sequence[str] | None, existing_scopes: Sequence[str]) -> list[str] | None:
    """Returns the scopes without duplicates. Raises input.invalid_params with the nearest ones."""
    if scopes is None:
        return None
    for index, scope in enumerate(scopes):
        if scope not in existing_scopes:
            raise KbprocError(
                "input.invalid_params",
                f"There is no scope {scope!r}.",
                field=f"$.params.scopes[{index}]",
                valid_values=nearest(scope, existing_scopes, most=20),
            )
    return list(dict.fromkeys(scopes))


def check_kbs(queries: Queries, kbs: Sequence[str]) -> list[str]:
    """Returns the slugs without duplicates. Raises resource.not_found with the nearest names."""
    slugs = queries.kb_slugs()
    for index, slug in enumerate(kbs):
        if slug not in slugs:
            near = nearest(slug, slugs)
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
            hint="Read the agent again, then decide.",
            detail={"revision": row.revision},
        )


# ------------------------------------------------------------------ the next revision


def event_of(row: AgentRow) -> AgentWritten:
    """Returns the event that writes the agent unchanged, at its next revision."""
    return AgentWritten(**_of_row(row), revision=row.revision + 1, quotas=quotas_of(row))


def row_of(event: AgentWritten, *, created_at: str, now: str) -> AgentRow:
    """Returns the agent as it will be once `event` is committed."""
    return AgentRow(
        **_of_event(event),
        quotas=canonical(event.quotas).decode(),
        created_at=created_at,
        updated_at=now,
        deleted_at=None,
    )


_of_row = common_members(AgentWritten, AgentRow, but=("revision", "quotas"))
_of_event = common_members(AgentRow, AgentWritten, but=("quotas",))
