"""Whether the files of the views are what was written.

Owns: the checksums of catalog, full-text index, vector view and pack, on disk and in use.
Refuses to know: the log, and how a damaged view is made again: its name is all that
whoever makes it needs.
"""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.sources.blobs import Blobs
from kbproc.views.catalog.tables import TABLES

if TYPE_CHECKING:
    from kbproc.views.catalog.catalog import Catalog
    from kbproc.views.vectors.search import VectorSnapshot

_HEADER = 4096  # three of them, then the blocks
_BLOCK = 262_144
_SEED, _FACTOR = 5381, 0xBF58476D1CE4E5B9


def damaged_files(views: Path) -> list[str]:
    """Names of the views whose files are damaged, while no process has them open.

    Among catalog, fulltext, vectors. A view that is not there is not damaged. Reads
    every byte: some 20 ms for 10,000 chunks.
    """
    wrong = []
    if not all(is_whole_catalog(path) for path in views.glob("catalog*.duckdb")):
        wrong.append("catalog")
    if damaged_fulltext(views / "fulltext"):
        wrong.append("fulltext")
    if damaged_vectors(views):
        wrong.append("vectors")
    return wrong


def drop_damaged(views: Path) -> list[str]:
    """Removes the views whose files are damaged, before they are opened; their names.

    The log makes them again. Raises OSError.
    """
    wrong = damaged_files(views)
    if "catalog" in wrong:
        for path in views.glob("catalog*.duckdb*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if "fulltext" in wrong:
        shutil.rmtree(views / "fulltext")
    if "vectors" in wrong:
        for path in (*views.glob("vectors.manifest"), *views.glob("vectors-*.faiss")):
            path.unlink()
    return wrong


def damaged_views(views: Path, catalog: Catalog) -> list[str]:
    """Names of the views of an open store that fail their checksums.

    Reads every column of every table once, and every file of the other views.
    """
    wrong = []
    if not _reads(catalog):
        wrong.append("catalog")
    if damaged_fulltext(views / "fulltext"):
        wrong.append("fulltext")
    if damaged_vectors(views):
        wrong.append("vectors")
    return wrong


def is_whole_catalog(path: Path) -> bool:
    """Whether every block of this DuckDB file has the checksum that stands before it.

    The sum is DuckDB's own: 5381 ⊕ each 64-bit word × 0xbf58476d1ce4e5b9, modulo 2⁶⁴. A
    file of a version that counts otherwise passes: DuckDB looks at what it reads.
    """
    try:
        data = path.read_bytes()
    except OSError:
        return False
    if len(data) < 3 * _HEADER:
        return False
    headers = [_has_its_checksum(data[at : at + _HEADER]) for at in range(0, 3 * _HEADER, _HEADER)]
    if not any(headers):
        return True
    if len(data) < 3 * _HEADER + _blocks_in(data) * _BLOCK:
        return False
    blocks = range(3 * _HEADER, len(data), _BLOCK)
    return all(headers) and all(_has_its_checksum(data[at : at + _BLOCK]) for at in blocks)


def _blocks_in(data: bytes) -> int:
    """As the newer of the two headers says: checksum, iteration, root, free list, blocks."""
    both = [struct.unpack_from("<5Q", data, at) for at in (_HEADER, 2 * _HEADER)]
    return int(max(both, key=lambda header: header[1])[4])


def _has_its_checksum(block: bytes) -> bool:
    import numpy as np

    if len(block) % 8 or len(block) < 16:
        return False
    words = np.frombuffer(block, "<u8")
    with np.errstate(over="ignore"):
        mixed = np.bitwise_xor.reduce(words[1:] * np.uint64(_FACTOR))
    return int(words[0]) == _SEED ^ int(mixed)


def _reads(catalog: Catalog) -> bool:
    import duckdb

    cursor = catalog.cursor()
    try:
        for table in TABLES:
            cursor.execute(f"select bit_xor(hash(t)) from {table} t").fetchall()  # noqa: S608
    except duckdb.Error:
        return False
    finally:
        cursor.close()
    return True


def damaged_fulltext(folder: Path) -> list[str]:
    """Files of the full-text index in use that are not what was written."""
    from kbproc.views.fulltext import digest

    try:
        current = json.loads((folder / "current.json").read_bytes())
        generation = folder / current["generation"]
        if not digest.is_sealed(current):  # nor is one that the first version wrote
            return ["current.json"]
        if digest.schema_sum(generation) != current["schema"]:
            return ["meta.json"]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError):
        return ["current.json"]
    return digest.damaged_files(generation)


def damaged_vectors(views: Path) -> list[str]:
    """Files of the vector view that fail their checksum."""
    import zlib

    from kbproc.views.vectors.view import MANIFEST, read_manifest

    if not (views / MANIFEST).exists():
        return []
    saved = read_manifest(views / MANIFEST)
    if saved is None:
        return [MANIFEST]
    if saved.graph is None:
        return []
    try:
        whole = zlib.crc32((views / saved.graph.name).read_bytes()) == saved.graph.crc
    except OSError:
        whole = False
    return [] if whole else [saved.graph.name]


def stray_vectors(snapshot: VectorSnapshot) -> list[str]:
    """Vectors in use that are not those of the pack, in words."""
    import numpy as np

    rows = snapshot.slots["row"][len(snapshot.slots) - len(snapshot.tail) :]
    vectors = snapshot.pack.vectors(rows)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.divide(vectors, norms, out=vectors, where=norms > 0)
    wrong = np.flatnonzero((vectors != snapshot.tail).any(axis=1))
    first = len(snapshot.slots) - len(snapshot.tail)
    chunks = snapshot.slots["chunk"][first:][wrong].tolist()
    return [f"chunk {chunk} has another vector than the pack" for chunk in chunks]


def broken_blobs(blobs: Blobs, wanted: dict[str, list[str]], *, deep: bool) -> dict[str, list[str]]:
    """Of the sources in `wanted`, those that are missing or, if `deep`, not what was stored.

    sha256 → the documents that it was the source of.
    """
    if not deep:
        return {sha: of for sha, of in wanted.items() if not blobs.path(sha).exists()}
    return {sha: of for sha, of in wanted.items() if not _is_whole(blobs, sha)}


def _is_whole(blobs: Blobs, sha256: str) -> bool:
    try:
        blobs.get(sha256)
    except KbprocError:
        return False
    return True
