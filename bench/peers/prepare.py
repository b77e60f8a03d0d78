"""Makes a store for kbproc with the given vectors, because no other peer embeds, either.

`python -m bench.peers.prepare FOLDER GIVEN DOCUMENTS`; of 0 documents: a store without a model.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from bench import corpus
from bench.peers.trial import Document, Given
from kbproc.engine.sources.chunk import embed_text


def prepare(folder: Path, documents: list[Document]) -> None:
    library = corpus.open_store(folder / "store", corpus.HASH if documents else corpus.NONE)
    pack, most = library.embedding.pack, library.embedding.max_tokens
    if documents:
        assert pack is not None
        strings = [embed_text(d.title, None, d.text, max_tokens=most) for d in documents]
        keys = [pack.key(string) for string in strings]
        pack.append(keys, np.stack([d.vector for d in documents]))
    library.close()


if __name__ == "__main__":
    folder, inputs, count = sys.argv[1:]
    prepare(Path(folder), Given(Path(inputs)).documents(0, int(count)))
