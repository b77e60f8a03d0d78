"""What nodes and workers of a cluster say to one another about embedding and parsing.

Owns: the names of streams and subjects, what the streams are like, and vectors, jobs, documents and
what a model is as bytes.
Refuses to know: connections, and when anything is said.

Two streams stand beside the log: one of vectors, which is a cache that any message may be missing
from, and one of jobs, each of which is gone once it is done. Neither is needed: without them every
node embeds by itself.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import BadRequestError, NotFoundError

from kbproc import __version__
from kbproc.base.errors import KbprocError
from kbproc.base.values import decoder, packed_decoder
from kbproc.log.jetstream.settings import StreamSettings
from kbproc.models.interface import Embedder

KEY_BYTES = 32
MAKER = "Kbproc-Maker"  # a header: who has made these vectors
TRIES = 3
ACK_WAIT_S = 5.0
_SIZE = struct.Struct("<I")  # of a record
_FIRST = KEY_BYTES + _SIZE.size
_PARCEL_BYTES = 256 << 10
_MOST_IN_A_PARCEL = 256
_MOST_VECTOR_MESSAGES = 200_000
_MOST_JOBS = 4_096
_JOB_S = 600.0
_IDLE_S = 86_400.0


class Model(Struct, frozen=True, kw_only=True):
    """What vectors depend on; `fingerprint` in hexadecimal."""

    fingerprint: str
    name: str
    dim: int
    max_tokens: int


class Beat(Struct, frozen=True, kw_only=True):
    """A worker is listening. `parallel`: jobs of each kind that it does at the same time.

    `parser`: as `Names.parser` tells it.
    """

    worker: str
    parallel: int
    parser: str = ""


class Job(Struct, frozen=True, kw_only=True):
    """Texts as UTF-8, lone surrogates included."""

    fingerprint: str
    texts: list[bytes]


class Unread(Struct, frozen=True, kw_only=True):
    """A job: a document that is to be parsed. Whoever takes the job asks for it at `reply`.

    Nothing of the document is in the job, so nothing of it lies on a server's disk.
    """

    id: str
    reply: str


class Ask(Struct, frozen=True, kw_only=True, tag="ask"):
    """For the piece of a document that begins at this byte. The answer is a Piece, or nothing where
    the document is not wanted any more.
    """

    id: str
    at: int


class Piece(Struct, frozen=True, kw_only=True):
    """`size`: of the whole document, in bytes."""

    type: str
    name: str
    title: str | None
    size: int
    data: bytes


class Hand(Struct, frozen=True, kw_only=True, tag="hand"):
    """A piece of what was read in a document: of an `Answer`, of `size` bytes in all."""

    id: str
    at: int
    size: int
    data: bytes


class Dead(Struct, frozen=True, kw_only=True):
    """A job that nobody is given again. Without its texts."""

    texts: int
    tries: int
    why: str


# Of what anybody may have published. A message that can't be read is passed over.
NOT_READABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

decode_model = decoder(Model).decode
decode_beat = decoder(Beat).decode
decode_dead = decoder(Dead).decode
decode_job = packed_decoder(Job).decode
decode_unread = packed_decoder(Unread).decode
decode_piece = packed_decoder(Piece).decode
decode_said = packed_decoder(Ask | Hand).decode  # type: ignore[arg-type]


class Names(NamedTuple):
    """Of one store under one model."""

    store: str
    fingerprint: bytes

    @property
    def _model(self) -> str:
        return self.fingerprint[:8].hex()

    @property
    def vectors(self) -> str:
        return f"kb.{self.store}.vectors.{self._model}"

    @property
    def jobs(self) -> str:
        return f"kb.{self.store}.work.{self._model}"

    @property
    def beats(self) -> str:
        return f"kb.{self.store}.workers.{self._model}"

    @property
    def consumer(self) -> str:
        return f"work-{self._model}"

    @property
    def parser(self) -> str:
        """Documents come out alike where this is the same: chunks are as long as the model reads,
        and another version may parse otherwise.
        """
        return hashlib.sha256(self.fingerprint + __version__.encode()).hexdigest()[:16]

    @property
    def documents(self) -> str:
        return f"kb.{self.store}.work.parse-{self.parser}"

    @property
    def parsers(self) -> str:
        """The consumer of `documents`."""
        return f"parse-{self.parser}"


def vectors_stream(store: str) -> str:
    return f"KB_{store}_vectors"


def work_stream(store: str) -> str:
    return f"KB_{store}_work"


def dead_subject(store: str) -> str:
    return f"kb.{store}.dead"


def model_subject(store: str) -> str:
    """Where nodes tell what they embed with."""
    return f"kb.{store}.model"


# ------------------------------------------------------------------------------ streams


async def make_streams(context: JetStreamContext, settings: StreamSettings) -> bool:
    """Those that are missing; whether the one of vectors was. Raises store.io."""
    try:
        log = await context.stream_info(settings.name)
    except NotFoundError:
        raise KbprocError(
            "store.io",
            f"There is no stream {settings.name}.",
            hint="kbproc cluster init makes it; --stream names what it was given.",
        ) from None
    replicas = log.config.num_replicas or 1
    await _make(context, _of_jobs(settings.stream, replicas))
    return await _make(context, _of_vectors(settings.stream, replicas))


async def _make(context: JetStreamContext, config: StreamConfig) -> bool:
    try:
        await context.stream_info(str(config.name))
    except NotFoundError:
        try:
            await context.add_stream(config)
        except BadRequestError:  # another has made it meanwhile
            return False
        return True
    return False


def _of_vectors(store: str, replicas: int) -> StreamConfig:
    return StreamConfig(
        name=vectors_stream(store),
        subjects=[f"kb.{store}.vectors.*"],
        storage=StorageType.FILE,
        num_replicas=replicas,
        max_msgs=_MOST_VECTOR_MESSAGES,
        discard=DiscardPolicy.OLD,
    )


def _of_jobs(store: str, replicas: int) -> StreamConfig:
    """Texts lie here: no longer than they have to, and not many."""
    return StreamConfig(
        name=work_stream(store),
        subjects=[f"kb.{store}.work.*", dead_subject(store)],
        storage=StorageType.FILE,
        num_replicas=replicas,
        retention=RetentionPolicy.WORK_QUEUE,
        discard=DiscardPolicy.NEW,
        max_msgs=_MOST_JOBS,
        max_age=_JOB_S,
    )


def consumer_of(subject: str, durable: str) -> ConsumerConfig:
    """Whoever takes a job more often than `TRIES` buries it: so the server gives it once more."""
    return ConsumerConfig(
        durable_name=durable,
        filter_subject=subject,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ACK_WAIT_S,
        max_deliver=TRIES + 2,
        inactive_threshold=_IDLE_S,
    )


# ------------------------------------------------------------------------------- vectors


def parcels(fingerprint: bytes, vectors: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Messages with all of them. Key → 16-bit floats, little-endian."""
    if not vectors:
        return
    size = KEY_BYTES + len(next(iter(vectors.values())))
    count = max(1, min(_MOST_IN_A_PARCEL, _PARCEL_BYTES // size))
    records = [key + half for key, half in vectors.items()]
    head = fingerprint + _SIZE.pack(size)
    for first in range(0, len(records), count):
        yield head + b"".join(records[first : first + count])


def unpacked(fingerprint: bytes, dim: int, data: bytes) -> dict[bytes, bytes]:
    """Nothing of a message that is of another model, or is none."""
    found = dict(_records(data))
    fits = all(len(half) == 2 * dim for half in found.values())
    return found if fits and data[:KEY_BYTES] == fingerprint else {}


def keys_in(data: bytes) -> list[bytes]:
    """Of vectors of whatever model."""
    return [key for key, _ in _records(data)]


def _records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(data) < _FIRST:
        return
    [size] = _SIZE.unpack_from(data, KEY_BYTES)
    if size <= KEY_BYTES or (len(data) - _FIRST) % size:
        return
    for at in range(_FIRST, len(data), size):
        yield data[at : at + KEY_BYTES], data[at + KEY_BYTES : at + size]


# ---------------------------------------------------------------------------------- jobs


def job(model: Model, strings: Sequence[str]) -> bytes:
    texts = [string.encode("utf-8", "surrogatepass") for string in strings]
    return msgspec.msgpack.encode(Job(fingerprint=model.fingerprint, texts=texts))


def key_of(fingerprint: bytes, text: bytes) -> bytes:
    """The pack's."""
    return hashlib.sha256(fingerprint + text).digest()


def model_of(embedder: Embedder) -> Model:
    return Model(
        fingerprint=embedder.fingerprint.hex(),
        name=embedder.name,
        dim=embedder.dim,
        max_tokens=embedder.max_tokens,
    )
