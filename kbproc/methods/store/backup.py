"""store.backup: copy the whole store to a new folder, while writes go on."""

from __future__ import annotations

import contextlib
import shlex
from functools import partial
from pathlib import Path

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.base.wording import plural
from kbproc.engine.store.decision import Decide, Decision
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.agents.notes.sync import Sync
from kbproc.knowledge.transfer import backup as copying
from kbproc.knowledge.transfer.outgoing import NewPath, new_place
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class BackUp(WriteParams, kw_only=True, frozen=True):
    path: NewPath


class BackedUp(Struct, kw_only=True, frozen=True):
    """A copy of everything up to `seq`."""

    path: str
    seq: int
    files: int
    bytes: int


def plan(call: Call, params: BackUp) -> Decide:
    target = _target(call, params)
    with call.library.store.exclusive(call.check_cancelled):
        stock = copying.take_stock(call.library.store, call.check_cancelled)
    change = f"copy {plural(len(stock.parts), 'file')}, {plural(stock.size, 'byte')}"
    return lambda here: Decision(
        events=[],
        data=None,
        changes=[f"{change}, to {target}"],
        counts={"files": len(stock.parts), "bytes": stock.size},
    )


def _target(call: Call, params: BackUp) -> Path:
    peer, own = call.peer, call.store.origin
    return new_place(params.path, cwd=peer.cwd, root=peer.root, outside=own)


@method(
    "store.backup",
    kind="write",
    undone_by=(),
    streams=True,
    scope="admin",
    params=BackUp,
    result=BackedUp,
    plan=plan,
    elsewhere=True,
    summary="Copy the whole store to a new folder.",
    when_to_use="Before an upgrade, and at regular times. Restoring is opening the copy; to move "
    "documents into another store use store.export.",
    errors=["resource.already_exists", "resource.not_found", "path.outside_root"],
    positional=["path"],
    examples=[
        Example(params={"path": "backup"}, what="to a new folder"),
        Example(params={"path": "backup", "dry_run": True}, what="what would be copied"),
        Example(params={"path": "docs"}, what="to a folder that is there already", exit=7),
    ],
)
def backup(call: Call, params: BackUp, write: LongWrite) -> Reply:
    target = _target(call, params)
    _sync_notes(call)
    with call.library.store.exclusive(call.check_cancelled):
        stock = copying.take_stock(call.library.store, call.check_cancelled)
        copied = copying.copy(
            stock,
            target,
            tell=partial(call.progress, "copy"),
            check=call.check_cancelled,
        )
    data = BackedUp(path=str(target), seq=stock.seq, files=copied.files, bytes=copied.bytes)
    outcome = write.end(data)
    return Reply(
        data=outcome.data,
        seq=max(outcome.seq, data.seq),
        hint=_elsewhere(stock.elsewhere)
        + f"Restoring is opening it: kbproc --store {shlex.quote(str(target))} status",
        notice=_lost([*stock.missing, *copied.damaged]),
    )


def _sync_notes(call: Call) -> None:
    """Records edits made by hand, because the copy has the notes that the log knows."""
    for agent in call.store.published.roster.agents.values():
        if agent.deleted_at is None and not call.store.read_only:
            with contextlib.suppress(KbprocError):  # stderr has the error; the backup goes on
                Sync(call.library.notebooks.book(agent), check=call.check_cancelled).run()
    call.check_cancelled()


def _elsewhere(agents: list[str]) -> str:
    if not agents:
        return ""
    whose = ", ".join(agents[:10]) + (", …" if len(agents) > 10 else "")
    return f"The notes of {whose} lie elsewhere: the copy has their texts, not the files. "


def _lost(sources: list[str]) -> list[str] | None:
    if not sources:
        return None
    lost = plural(len(sources), "source is", "sources are")
    return [f"{lost} missing or damaged in the store, and so not in the copy. See kbproc doctor."]
