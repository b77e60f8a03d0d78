"""One record of the log: its line, its hash, what a purge or a repair leaves of it.

Owns: the shape of a line, the chain, telling a sound record from a damaged one.
Refuses to know: segments, files, and what events mean: `events` and `result`
pass through as raw JSON.

A line is `{"seq","ts","actor","method","token","params_hash","result","salt",
"events","prev","hash"}`. `body` = blake2b-128(salt ‖ result ‖ events) and
`hash` = blake2b-128(prev ‖ envelope ‖ body). A purge takes texts out of `events`
and `result`, drops the salt, so that nobody can guess the text from its hash,
and writes `body` into the line: the chain still verifies. What stands there now
has a checksum of its own, `check`. A stretch that no one can read any more is
replaced by one record from `lost` to `seq` that keeps the last one's hash.

`params_hash` is hashed once more with the salt, so that it dies with the salt. Early records
have it bare; what `salt_params` makes of one has the old hash, which nobody can compute
any more, and so is `resealed`: `check` alone tells that it is sound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from kbproc.base.values import decoder

GENESIS = "0" * 32


class Position(NamedTuple):
    """A place in the log: the last record's seq and hash."""

    seq: int
    hash: str


START = Position(0, GENESIS)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A record before the log has numbered and chained it."""

    ts: str
    actor: str
    method: str
    salt: str
    events: msgspec.Raw
    token: str | None = None
    params_hash: str | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log."""

    seq: int
    ts: str
    actor: str
    method: str
    token: str | None
    params_hash: str | None
    result: msgspec.Raw
    salt: str
    events: msgspec.Raw
    prev: str
    hash: str
    body: str | UnsetType = UNSET
    check: str | UnsetType = UNSET
    lost: int | UnsetType = UNSET
    resealed: bool | UnsetType = UNSET

    @property
    def position(self) -> Position:
        return Position(self.seq, self.hash)

    @property
    def first(self) -> int:
        """The first seq that it stands for; its own, but where records were lost."""
        return self.seq if self.lost is UNSET else self.lost


encode = msgspec.json.Encoder().encode
decode = decoder(Record).decode
_SEQ = re.compile(rb'\{"seq":(\d{1,18}),')


def seq_of(line: bytes) -> int | None:
    """Read off a line's start without decoding it."""
    found = _SEQ.match(line)
    return int(found[1]) if found else None


def seal(draft: Draft, prev: Position) -> Record:
    seq = prev.seq + 1
    fields = msgspec.structs.asdict(draft)
    return Record(
        seq=seq, prev=prev.hash, hash=_chained(prev.hash, seq, draft, _body(draft)), **fields
    )


def seal_all(drafts: Iterable[Draft], prev: Position) -> list[Record]:
    """One after another, the first after `prev`."""
    sealed = []
    for draft in drafts:
        sealed.append(seal(draft, prev))
        prev = sealed[-1].position
    return sealed


def redacted(record: Record, *, events: bytes, result: bytes, salt: str = "") -> Record:
    """The record with other events and result under its old hash.

    With its old salt, whoever guesses what it held can tell that it was that.
    """
    body = _body(record).hex() if record.body is UNSET else record.body
    bare = msgspec.structs.replace(
        record, events=msgspec.Raw(events), result=msgspec.Raw(result), salt=salt, body=body
    )
    return msgspec.structs.replace(bare, check=_checksum(bare))


def unsalted(record: Record) -> Record:
    """The record as it is, but that nobody can guess its params any more."""
    return redacted(record, events=bytes(record.events), result=bytes(record.result))


_SALTED = "salted:"


def salted(params_hash: str, salt: str) -> str:
    """What is kept of a request's params: without the salt nobody can guess them from it."""
    key, given = bytes.fromhex(salt), bytes.fromhex(params_hash)
    return _SALTED + blake2b(given, key=key, digest_size=16).hexdigest()


def same_params(kept: str | None, salt: str, params_hash: str) -> bool:
    """True, too, where a purge has taken the salt: then nobody can tell."""
    return kept is None or not salt or kept in {params_hash, salted(params_hash, salt)}


def salt_params(record: Record) -> Record:
    """An early record whose `params_hash` is as a later one's; any other as it is."""
    if record.params_hash is None or record.params_hash.startswith(_SALTED):
        return record
    kept = salted(record.params_hash, record.salt) if record.salt else None
    bare = msgspec.structs.replace(record, params_hash=kept, resealed=True)
    return msgspec.structs.replace(bare, check=_checksum(bare))


def placeholder(*, first: int, last: Position, prev: str, ts: str) -> Record:
    """Stands for the records from `first` to `last`, which are lost."""
    bare = Record(
        seq=last.seq,
        ts=ts,
        actor="kbproc",
        method="doctor",
        token=None,
        params_hash=None,
        result=msgspec.Raw(b"null"),
        salt="",
        events=msgspec.Raw(b"[]"),
        prev=prev,
        hash=last.hash,
        lost=first,
    )
    return msgspec.structs.replace(bare, check=_checksum(bare))


def is_sound(record: Record) -> bool:
    """True if the record is what was written, whatever stands around it."""
    try:
        if record.check is not UNSET and record.check != _checksum(record):
            return False
        if record.lost is not UNSET:
            return record.check is not UNSET and record.lost <= record.seq
        if record.resealed is not UNSET:
            return record.check is not UNSET
        hexes = [record.prev, record.salt] + ([] if record.body is UNSET else [record.body])
        if any(bytes.fromhex(text).hex() != text for text in hexes):
            return False  # a flipped bit can make a letter large and leave the number as it was
        body = _body(record) if record.body is UNSET else bytes.fromhex(record.body)
        return _chained(record.prev, record.seq, record, body) == record.hash
    except ValueError:  # what should be hexadecimal is not
        return False


def fault(record: Record, after_seq: int, after_hash: str | None) -> str | None:
    """What is wrong with a record that comes after another; None if nothing is.

    Without the other's hash, a lost stretch may have begun before `after_seq`.
    """
    begins_late = record.first > after_seq + 1
    begins_early = record.first <= after_seq and after_hash is not None
    if record.seq <= after_seq or begins_late or begins_early:
        return f"goes from seq {after_seq} to {record.seq}"
    if after_hash not in {None, record.prev}:
        return f"breaks the chain at seq {record.seq}"
    return None if is_sound(record) else f"holds a damaged record at seq {record.seq}"


def replaced(record: Record, other: Record) -> Record:
    """`other`, if it may stand in the place of `record`. Raises ValueError."""
    if other is not record and (
        other.position != record.position or fault(other, record.first - 1, record.prev) is not None
    ):
        raise ValueError(f"What was to replace record {record.seq} would break the chain.")
    return other


def _body(draft: Draft | Record) -> bytes:
    body = blake2b(bytes.fromhex(draft.salt), digest_size=16)
    body.update(bytes(draft.result))
    body.update(bytes(draft.events))
    return body.digest()


def _chained(prev: str, seq: int, draft: Draft | Record, body: bytes) -> str:
    envelope = (seq, draft.ts, draft.actor, draft.method, draft.token, draft.params_hash)
    chained = blake2b(bytes.fromhex(prev), digest_size=16)
    chained.update(encode(envelope))
    chained.update(body)
    return chained.hexdigest()


def _checksum(record: Record) -> str:
    """Of everything in the line but itself."""
    return blake2b(encode(msgspec.structs.replace(record, check=UNSET)), digest_size=16).hexdigest()
