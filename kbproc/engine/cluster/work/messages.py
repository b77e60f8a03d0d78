"""Defines the messages and streams by which a cluster's nodes and workers embed and parse together.

Two streams stand beside the log: a stream of vectors, which is a cache that may lack any message,
and a stream of jobs, each of which is deleted once it is done. A cluster works without them,
because every node can embed by itself.
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
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.models.interface import Embedder

KEY_BYTES = 32
MAKER = "Kbproc-Maker"  # the header with the id of the process that computed the vectors
TRIES = 3
ACK_WAIT_S = 5.0
_SIZE = struct.Struct("<I")  # a record's size
_FIRST = KEY_BYTES + _SIZE.size
_PARCEL_BYTES = 256 << 10
_MOST_IN_A_PARCEL = 256
_MOST_VECTOR_MESSAGES = 200_000
MOST_JOBS = 4_096
JOB_S = 600.0
_IDLE_S = 86_400.0


class NodeModel(Struct, frozen=True, kw_only=True):
    """The model that vectors depend on. `fingerprint`: in hexadecimal."""

    fingerprint: str
    name: str
    dim: int
    max_tokens: int


class Beat(Struct, frozen=True, kw_only=True):
    """A worker's sign of life. `parallel`: jobs of each kind that it does at the same time.

    `parser`: see `NodeNames.parser`.
    """

    worker: str
    parallel: int
    parser: str = ""


class EmbedJob(Struct, frozen=True, kw_only=True):
    """A job: texts to embed, as UTF-8 with lone surrogates."""

    fingerprint: str
    texts: list[bytes]


class ParseJob(Struct, frozen=True, kw_only=True):
    """A job: a document to parse. The worker that takes the job requests it at `reply`.

    The document is not in the job, so that no server's disk holds any of it.
    """

    id: str
    reply: str


class PieceRequest(Struct, frozen=True, kw_only=True, tag="ask"):
    """A request for the piece of a document that begins at this byte.

    The answer is a TextPiece, or empty if the node does not need the document any more.
    """

    id: str
    at: int


class TextPiece(Struct, frozen=True, kw_only=True):
    """A piece of a document. `size`: bytes of the whole document."""

    type: str
    name: str
    title: str | None
    size: int
    data: bytes


class ResultPiece(Struct, frozen=True, kw_only=True, tag="hand"):
    """A piece of a parsed document: of an encoded `Answer` of `size` bytes in all."""

    id: str
    at: int
    size: int
    data: bytes


class BuriedJob(Struct, frozen=True, kw_only=True):
    """A note of a job that failed for good, without its texts."""

    texts: int
    tries: int
    why: str


decode_model = decoder(NodeModel).decode
decode_beat = decoder(Beat).decode
decode_buried_job = decoder(BuriedJob).decode
decode_embed_job = packed_decoder(EmbedJob).decode
decode_parse_job = packed_decoder(ParseJob).decode
decode_piece = packed_decoder(TextPiece).decode
decode_request = packed_decoder(PieceRequest | ResultPiece).decode  # type: ignore[arg-type]


class NodeNames(NamedTuple):
    """The subjects and consumers of one store under one model."""

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
        """An id of the way documents are parsed: processes with the same id return the same chunks.

        Chunks are as long as the model reads, and another version may parse differently.
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
    """Returns the subject at which nodes answer with their model."""
    return f"kb.{store}.model"


# ------------------------------------------------------------------------------ streams


async def make_streams(context: JetStreamContext, settings: StreamSettings) -> bool:
    """Makes the missing streams; returns whether the stream of vectors is new. Raises store.io."""
    try:
        log = await context.stream_info(settings.name)
    except NotFoundError:
        raise KbprocError(
            "store.io",
            f"There is no stream {settings.name}.",
            hint="Make it by kbproc cluster init, and give --stream the same name.",
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
        except BadRequestError:  # another process was first
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
    """Returns the stream of jobs, which holds few texts and each for a short time only."""
    return StreamConfig(
        name=work_stream(store),
        subjects=[f"kb.{store}.work.*", dead_subject(store)],
        storage=StorageType.FILE,
        num_replicas=replicas,
        retention=RetentionPolicy.WORK_QUEUE,
        discard=DiscardPolicy.NEW,
        max_msgs=MOST_JOBS,
        max_age=JOB_S,
    )


def consumer_of(subject: str, durable: str) -> ConsumerConfig:
    """Returns the consumer of a subject.

    It delivers a job more than `TRIES` times, so that one more worker gets the job to bury it.
    """
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
    """Yields messages that hold all vectors. `vectors`: key → 16-bit floats, little-endian."""
    if not vectors:
        return
    size = KEY_BYTES + len(next(iter(vectors.values())))
    count = max(1, min(_MOST_IN_A_PARCEL, _PARCEL_BYTES // size))
    records = [key + half for key, half in vectors.items()]
    head = fingerprint + _SIZE.pack(size)
    for first in range(0, len(records), count):
        yield head + b"".join(records[first : first + count])


def unpacked(fingerprint: bytes, dim: int, data: bytes) -> dict[bytes, bytes]:
    """Returns the vectors in a message by their keys; none if it is damaged or of another model."""
    vectors = dict(_records(data))
    fits = all(len(half) == 2 * dim for half in vectors.values())
    return vectors if fits and data[:KEY_BYTES] == fingerprint else {}


def keys_in(data: bytes) -> list[bytes]:
    """Returns the keys of the vectors in a message, of any model."""
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


def job(model: NodeModel, strings: Sequence[str]) -> bytes:
    texts = [string.encode("utf-8", "surrogatepass") for string in strings]
    return msgspec.msgpack.encode(EmbedJob(fingerprint=model.fingerprint, texts=texts))


def key_of(fingerprint: bytes, text: bytes) -> bytes:
    """Returns a text's key, as VectorPack.key makes it."""
    return hashlib.sha256(fingerprint + text).digest()


def model_of(embedder: Embedder) -> NodeModel:
    return NodeModel(
        fingerprint=embedder.fingerprint.hex(),
        name=embedder.name,
        dim=embedder.dim,
        max_tokens=embedder.max_tokens,
    )
