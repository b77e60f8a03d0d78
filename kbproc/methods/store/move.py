"""store.move: have the store's log on servers of NATS, or in its folder again."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.values import LOG_PLACE, Slug
from kbproc.engine.store.decision import Decide
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.cluster import moving
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply

_FILE = "file"


class MoveStore(moving.ServerParams, kw_only=True, frozen=True):
    to: Annotated[
        list[Annotated[str, Meta(pattern=LOG_PLACE)]],
        Meta(min_length=1, max_length=20, description="nats://HOST:PORT of each server, or file"),
    ]
    stream: Annotated[
        Slug, Meta(description="what the servers call the store; another name for each store")
    ] = "kbproc"
    replicas: moving.Replicas = None

    @property
    def is_home(self) -> bool:
        """Returns whether the log moves into the store's folder. Raises input.invalid_params."""
        if _FILE in self.to and len(self.to) > 1:
            raise KbprocError(
                "input.invalid_params",
                "The log is in one place: on servers, or in the store's folder.",
                field="$.params.to",
                hint="Name the servers only, or file alone.",
            )
        return _FILE in self.to


def plan(call: Call, params: MoveStore) -> Decide:
    if params.is_home:
        return moving.foresee_leave(call.library)
    return moving.foresee_creation(call.library, params.stream)


@method(
    "store.move",
    kind="write",
    undone_by=("store.move",),
    streams=True,
    scope="admin",
    params=MoveStore,
    result=moving.Moved,
    plan=plan,
    summary="Move the store's log to NATS servers, or back.",
    when_to_use="As cluster.init and cluster.leave, in one: the old place is let go of once the "
    "new one ends with a record of the same number and hash.",
    errors=["resource.conflict", "store.incompatible", "input.invalid_params"],
    examples=[
        Example(
            params={"to": ["nats://127.0.0.1:4222"], "dry_run": True},
            what="what would be published",
        ),
        Example(params={"to": ["file"]}, what="of a store whose log is in its folder"),
    ],
)
def move(call: Call, params: MoveStore, write: LongWrite) -> Reply:
    if params.is_home:
        moved = moving.fetch(call.library)
    else:
        moved = moving.found(
            call.library,
            params.settings_of(params.to, params.stream, call.peer.cwd),
            params.replicas,
            lambda done, total: call.progress("publish", done, total, params.stream),
        )
    return Reply.ending(write.end(moved), moved.seq)
