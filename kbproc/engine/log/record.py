"""Encodes, chains, checks, purges and replaces single records of the log.

A line is `{"seq","ts","actor","method","token","params_hash","result","salt",
"events","prev","hash"}`. `body` = blake2b-128(salt ‖ result ‖ events) and
`hash` = blake2b-128(prev ‖ envelope ‖ body). A purge takes texts out of `events`
and `result`, drops the salt, so that the text can't be guessed from its hash,
and writes `body` into the line: the chain still verifies. The new content
has a checksum of its own, `check`. A stretch that can't be read any more is
replaced by one record from `lost` to `seq` that keeps the last one's hash.

`params_hash` is hashed once more with the salt, so that it dies with the salt. Early records
have it unsalted; `salt_params` salts it and keeps the record's hash, which then can't be
recomputed. Such a record is `resealed`: `check` alone proves that it is sound.
"""

# Annotations are values here: msgspec compiles each that is a text, at every start.

import re
from collections.abc import Iterable

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kbproc.base.hashes import blake2b
from kbproc.base.values import decoder

GENESIS = "0" * 32


class Position(Struct, frozen=True, order=True, array_like=True):
    """A place in the log: the last record's seq and hash."""

    seq: int
    hash: str


START = Position(0, GENESIS)


class RecordDraft(msgspec.Struct, frozen=True, kw_only=True):
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
        """The first seq that the record stands for: its own, unless records were lost."""
        return self.seq if self.lost is UNSET else self.lost


encode = msgspec.json.Encoder().encode
decode = decoder(Record).decode
_SEQ = re.compile(rb'\{"seq":(\d{1,18}),')


def seq_of(line: bytes) -> int | None:
    """Returns the seq from a line's start, without decoding the line."""
    match = _SEQ.match(line)
    return int(match[1]) if match else None


def seal(draft: RecordDraft, prev: Position) -> Record:
    seq = prev.seq + 1
    fields = msgspec.structs.asdict(draft)
    return Record(
        seq=seq, prev=prev.hash, hash=_chained(prev.hash, seq, draft, _body(draft)), **fields
    )


def seal_all(drafts: Iterable[RecordDraft], prev: Position) -> list[Record]:
    """Numbers and chains the drafts in order, the first one after `prev`."""
    sealed = []
    for draft in drafts:
        sealed.append(seal(draft, prev))
        prev = sealed[-1].position
    return sealed


def redacted(record: Record, *, events: bytes, result: bytes, salt: str = "") -> Record:
    """Returns the record with other events and result under its old hash.

    Pass no old salt where the text must stay secret: with it a guess of the old text can be
    verified.
    """
    body = _body(record).hex() if record.body is UNSET else record.body
    unsealed = msgspec.structs.replace(
        record, events=msgspec.Raw(events), result=msgspec.Raw(result), salt=salt, body=body
    )
    return msgspec.structs.replace(unsealed, check=_checksum(unsealed))


def unsalted(record: Record) -> Record:
    """Returns the record without its salt, so that its params can't be guessed any more."""
    return redacted(record, events=bytes(record.events), result=bytes(record.result))


_SALTED = "salted:"


def salted(params_hash: str, salt: str) -> str:
    """Returns the hash of params that the log keeps; without the salt they can't be guessed."""
    key, digest = bytes.fromhex(salt), bytes.fromhex(params_hash)
    return _SALTED + blake2b(digest, key=key, digest_size=16).hexdigest()


def same_params(recorded_hash: str | None, salt: str, params_hash: str) -> bool:
    """Returns False if the recorded params differ; True if a purge has taken the salt."""
    return (
        recorded_hash is None
        or not salt
        or recorded_hash in {params_hash, salted(params_hash, salt)}
    )


def salt_params(record: Record) -> Record:
    """Returns an early record with its `params_hash` salted; any other record unchanged."""
    if record.params_hash is None or record.params_hash.startswith(_SALTED):
        return record
    params_hash = salted(record.params_hash, record.salt) if record.salt else None
    unsealed = msgspec.structs.replace(record, params_hash=params_hash, resealed=True)
    return msgspec.structs.replace(unsealed, check=_checksum(unsealed))


def placeholder(*, first: int, last: Position, prev: str, ts: str) -> Record:
    """Returns a record that stands for the lost records from `first` to `last`."""
    unsealed = Record(
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
    return msgspec.structs.replace(unsealed, check=_checksum(unsealed))


def is_sound(record: Record) -> bool:
    """Returns True if the record is what was written; its neighbours don't matter."""
    try:
        if record.check is not UNSET and record.check != _checksum(record):
            return False
        if record.lost is not UNSET:
            return record.check is not UNSET and record.lost <= record.seq
        if record.resealed is not UNSET:
            return record.check is not UNSET
        hex_fields = [record.prev, record.salt] + ([] if record.body is UNSET else [record.body])
        if any(bytes.fromhex(text).hex() != text for text in hex_fields):
            return False  # a flipped bit can change a letter's case, and the number stays equal
        body = _body(record) if record.body is UNSET else bytes.fromhex(record.body)
        return _chained(record.prev, record.seq, record, body) == record.hash
    except ValueError:  # a field is not hexadecimal
        return False


def fault(record: Record, after_seq: int, after_hash: str | None) -> str | None:
    """Returns the fault of a record that follows `after_seq`, in words; None without one.

    Without `after_hash`, a lost stretch may have begun before `after_seq`.
    """
    begins_late = record.first > after_seq + 1
    begins_early = record.first <= after_seq and after_hash is not None
    if record.seq <= after_seq or begins_late or begins_early:
        return f"goes from seq {after_seq} to {record.seq}"
    if after_hash not in {None, record.prev}:
        return f"breaks the chain at seq {record.seq}"
    return None if is_sound(record) else f"holds a damaged record at seq {record.seq}"


def replaced(record: Record, replacement: Record) -> Record:
    """Returns `replacement` if it may take the place of `record`. Raises ValueError."""
    if replacement is not record and (
        replacement.position != record.position
        or fault(replacement, record.first - 1, record.prev) is not None
    ):
        raise ValueError(f"What was to replace record {record.seq} would break the chain.")
    return replacement


def _body(draft: RecordDraft | Record) -> bytes:
    body = blake2b(bytes.fromhex(draft.salt), digest_size=16)
    body.update(bytes(draft.result))
    body.update(bytes(draft.events))
    return body.digest()


def _chained(prev: str, seq: int, draft: RecordDraft | Record, body: bytes) -> str:
    envelope = (seq, draft.ts, draft.actor, draft.method, draft.token, draft.params_hash)
    digest = blake2b(bytes.fromhex(prev), digest_size=16)
    digest.update(encode(envelope))
    digest.update(body)
    return digest.hexdigest()


def _checksum(record: Record) -> str:
    """Returns the checksum of everything in the line except `check`."""
    return blake2b(encode(msgspec.structs.replace(record, check=UNSET)), digest_size=16).hexdigest()
