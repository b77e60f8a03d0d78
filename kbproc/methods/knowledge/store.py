"""knowledge.store: store what was learned, as a knowledge entry."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.base.settings.config import DEFAULT_KB
from kbproc.base.times import instant
from kbproc.base.values import MOST_ALIASES, Instant, KbSlug, Tags, clean_name, clean_tags
from kbproc.base.wording import change
from kbproc.engine.events.document import DocWritten
from kbproc.engine.events.entry import EntryFacts
from kbproc.engine.events.origin import PERSON
from kbproc.engine.store import edited_files
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.model import IndexStatus
from kbproc.knowledge.agents.quotas import check_quota
from kbproc.knowledge.documents import anchors, entry, lookup, review, revision, trust
from kbproc.knowledge.documents.content import content_of_text
from kbproc.knowledge.documents.document import places_of
from kbproc.knowledge.documents.entry import TaskRef
from kbproc.knowledge.search.similar import Similar, similar
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class StoreEntry(WriteParams, kw_only=True, frozen=True):
    title: Annotated[str, Meta(min_length=1, max_length=200, description="what it says, in short")]
    body: Annotated[
        str, Meta(min_length=1, max_length=entry.MAX_BODY, description="what was learned")
    ]
    kb: Annotated[KbSlug, Meta(description="knowledge base to put it in")] = DEFAULT_KB
    tags: Tags = []
    confidence: Annotated[int, Meta(ge=0, le=100, description="how sure it is, in percent")] = 80
    expires_at: (
        Annotated[Instant, Meta(description="when it ceases to hold: RFC 3339, in the future")]
        | None
    ) = None
    task_ref: Annotated[TaskRef, Meta(description="the task that it has to do with")] | None = None
    source: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=500,
                description="where it was learned, such as a URL; else agent or user",
            ),
        ]
        | None
    ) = None
    # Unset and not null, so that older requests under a token keep their hash.
    origin: trust.StatedOrigin | UnsetType = UNSET
    derived_from: anchors.DerivedFrom | UnsetType = UNSET
    review_after: trust.ReviewAfter | UnsetType = UNSET
    aliases: entry.Aliases | UnsetType = UNSET
    valid_from: (
        Annotated[
            Instant,
            Meta(description="when it began to be true: RFC 3339; else when it is stored"),
        ]
        | UnsetType
    ) = UNSET
    valid_to: (
        Annotated[Instant, Meta(description="when it ceased to be true, or will: RFC 3339")]
        | UnsetType
    ) = UNSET


class Stored(entry.Entry, kw_only=True, frozen=True):
    """A stored entry; `similar`: at most three valid entries that say nearly the same, nearest
    first.

    A repeated request with the same token does not get them again.
    """

    similar: list[Similar] = []


@method(
    "knowledge.store",
    kind="write",
    undone_by=("events.revert",),
    params=StoreEntry,
    result=Stored,
    summary="Store what was learned, as a knowledge entry.",
    when_to_use="When something was found out that will be needed again. One fact or "
    "procedure an entry, with a title that says it. To correct an entry, store the right one "
    "and supersede the wrong one; data.similar names entries that say nearly the same. Where the "
    "knowledge base has a review, data.in_review says that the entry waits for an approval.",
    errors=["resource.not_found", "quota.exceeded", "operation.failed"],
    examples=[
        Example(
            params={
                "title": "The CI cache is keyed by lock file",
                "body": "Deleting the lock file drops the cache; builds take 12 minutes then.",
                "tags": ["ci"],
                "aliases": ["build cache"],
                "confidence": 90,
                "task_ref": {"task_id": "T-17", "kind": "produced"},
            },
            what="something that a task brought to light",
        ),
        Example(
            params={
                "title": "Git signs tags with gpg",
                "body": "git tag -s; the key must be in the keyring.",
                "derived_from": [1],
                "review_after": "2099-01-01",
            },
            what="what a document says, and when to check it",
        ),
        Example(
            params={
                "title": "Git can be installed from source",
                "body": "make all; make install",
                "derived_from": ["docs/git-admin.md:1-3"],
            },
            what="what lines of a file say",
        ),
        Example(
            params={"title": "x", "body": "y", "expires_at": "2001-01-01"},
            what="one that would have expired already",
            exit=1,
        ),
    ],
)
def store(call: Call, params: StoreEntry) -> Decide:
    title = clean_name(params.title, field="$.params.title")
    tags = clean_tags(params.tags)
    facts = _facts(call, params)
    stated = None if params.origin is UNSET else params.origin
    trust.check_stated(call.origin, stated)
    origin = trust.entry_origin(call.origin, stated, facts.source)
    content = _content(call, params, title)
    alike = similar(call.store, title, params.body, now=call.now)
    sources = _sources(call, params)

    def decide(here: DecisionState) -> Decision:
        lookup.require_kb(here, params.kb)
        trust.check_future(facts.expires_at, here.now, field="$.params.expires_at")
        trust.check_future(facts.review_after, here.now, field="$.params.review_after")
        actor = call.peer.actor
        check_quota(
            here.agent(actor),
            "knowledge_stored",
            lambda: here.queries.entries_owned(actor),
            instead="Delete entries that hold no more, with knowledge.delete",
        )
        ids, anchored = anchors.with_documents(here.queries, sources)
        event = revision.document_written(
            here,
            content,
            kb=params.kb,
            existing=None,
            ids=revision.Ids(here),
            tags=tags,
            metadata={},
            origin=trust.origin_from(here.queries, ids, origin),
        )
        sourced = msgspec.structs.replace(facts, derived_from=ids, anchors=anchored)
        own = review.facts_after(here.queries, event, sourced)
        event = msgspec.structs.replace(event, entry=own)
        status = call.store.model.status_when_new
        stored = _entry_after(event, own, alike, created_by=actor, now=here.ts, status=status)
        recorded = msgspec.structs.replace(stored, similar=[])  # they hold other entries' titles
        return Decision(events=[event], data=stored, kept=recorded, changes=_changes(stored))

    return decide


def _content(call: Call, params: StoreEntry, title: str) -> revision.Content:
    intake = call.library.intake
    keep = not params.dry_run
    body = content_of_text(intake, params.body, "markdown", title, field="$.params.body", keep=keep)
    aliases = list(dict.fromkeys([*_aliases(params), *body.aliases]))[:MOST_ALIASES]
    return msgspec.structs.replace(body, doc_type="knowledge", aliases=aliases)


def _sources(call: Call, params: StoreEntry) -> anchors.NamedSources:
    """Returns what the writer names; for an agent that names nothing, files that it has edited."""
    peer = call.peer
    if params.derived_from is not UNSET:
        return anchors.named(params.derived_from, cwd=peer.cwd, root=peer.root)
    if call.origin == PERSON or not call.library.store.is_local:
        return anchors.NamedSources()
    edited = edited_files.lately(call.library.store.folder, call.host.now_ms())
    return anchors.edited(edited, f"{params.title}\n{params.body}", cwd=peer.cwd, root=peer.root)


def _changes(stored: Stored) -> list[str]:
    """Returns the sentences of the plan."""
    return [
        f"add “{stored.title}” to {stored.kb}",
        *change("confidence", None, stored.confidence),
        *change("tags", [], stored.tags),
        *change("expires_at", None, stored.expires_at),
        *change("review_after", None, stored.review_after),
        *change("aliases", [], stored.aliases),
        *(["it waits for an approval: review.list"] if stored.in_review is True else []),
        *change("valid_from", None, stored.valid_from or None),
        *change("valid_to", None, stored.valid_to or None),
        *change("places", [], stored.places or []),
    ]


def _entry_after(
    event: DocWritten,
    facts: EntryFacts,
    similar: list[Similar],
    *,
    created_by: str,
    now: str,
    status: IndexStatus,
) -> Stored:
    """Returns the entry as it will be after the commit."""
    return Stored(
        id=event.id,
        kb=event.kb,
        title=event.title,
        tags=event.tags,
        confidence=facts.confidence,
        expires_at=facts.expires_at,
        expired=False,
        task_ref=entry.task_ref_of(facts.task_id, facts.task_kind),
        source=facts.source,
        created_by=created_by,
        created_at=now,
        superseded_by=None,
        head=event.id,
        embedding_status=status,
        origin=event.origin or "agent",
        derived_from=facts.derived_from,
        valid_from=facts.valid_from or UNSET,
        valid_to=facts.valid_to or UNSET,
        places=places_of(facts.anchors) or UNSET,
        review_after=facts.review_after,
        similar=similar,
        aliases=event.aliases,
        in_review=facts.in_review or UNSET,
    )


def _aliases(params: StoreEntry) -> list[str]:
    aliases = [] if params.aliases is UNSET else params.aliases
    places = enumerate(aliases)
    return [clean_name(alias, field=f"$.params.aliases[{place}]") for place, alias in places]


def _facts(call: Call, params: StoreEntry) -> EntryFacts:
    task = params.task_ref
    field = "$.params.task_ref.task_id"
    source = "user" if call.agent is None else "agent"
    if params.source is not None:
        source = clean_name(params.source, field="$.params.source")
    expires_at = params.expires_at
    review_after = None if params.review_after is UNSET else params.review_after
    if expires_at is not None:
        expires_at = instant(expires_at, field="$.params.expires_at")
    if review_after is not None:
        review_after = instant(review_after, field="$.params.review_after")
    validity = _validity(params)
    return EntryFacts(
        confidence=params.confidence,
        source=source,
        expires_at=expires_at,
        task_id=None if task is None else clean_name(task.task_id, field=field),
        task_kind=None if task is None else task.kind,
        review_after=review_after,
        valid_from=validity.get("valid_from"),
        valid_to=validity.get("valid_to"),
    )


def _validity(params: StoreEntry) -> dict[str, str]:
    """Returns when what the entry says began and ceased. Raises input.invalid_params."""
    bounds = {
        name: instant(value, field=f"$.params.{name}")
        for name in ("valid_from", "valid_to")
        if (value := getattr(params, name)) is not UNSET
    }
    if len(bounds) > 1 and bounds["valid_to"] <= bounds["valid_from"]:
        raise KbprocError(
            "input.invalid_params",
            f"valid_to is {bounds['valid_to']}, and valid_from is {bounds['valid_from']}.",
            field="$.params.valid_to",
            hint="Give a moment after valid_from, or leave one of them out.",
        )
    return bounds
