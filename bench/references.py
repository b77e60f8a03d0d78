"""Writes sentence-transformers' vectors, with which exports of known models are compared.

`python -m bench.references` needs the extra `export` and both models.
"""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path

import numpy as np

from kbproc.engine.models import through_torch
from kbproc.engine.models.calibration import Prompts
from kbproc.engine.models.catalogue import KNOWN_MODELS
from kbproc.engine.models.export import PARITY_TEXTS, REFERENCES
from kbproc.engine.models.packed import unpack
from kbproc.engine.models.weights import CARRIERS, locate


def main() -> None:
    references = {}
    for name in KNOWN_MODELS:
        source = locate(name)
        if source.folder is None:
            raise SystemExit(f"The package {CARRIERS[name].package} is not installed.")
        with tempfile.TemporaryDirectory() as unpacked:
            folder = source.folder
            if source.packed:
                folder = Path(unpacked)
                unpack(source.packed, folder)
            model = through_torch.load_sentence(folder)
            prompt = Prompts.of(getattr(model, "prompts", None)).document
            vectors = through_torch.embedded(model, [prompt + text for text in PARITY_TEXTS])
        assert source.sha256 is not None
        halves = (vector.astype(np.dtype("<f2")).tobytes() for vector in vectors)
        references[source.sha256] = [base64.b64encode(half).decode() for half in halves]
        print(f"{name}: {len(vectors)} vectors")
    REFERENCES.write_text(json.dumps(references, indent=1) + "\n")


if __name__ == "__main__":
    main()
