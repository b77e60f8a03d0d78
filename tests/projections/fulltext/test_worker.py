"""The process that finds words: frames in, frames out, and an end with its parent."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from kbproc.base.frames import frame, read_frame
from kbproc.base.values import packed_decoder
from kbproc.engine.projections.fulltext.words import ChunkTexts, ChunkWords, words_of
from tests.kit.harness import ENVIRONMENT
from tests.kit.patience import LIVES

WORKER = "kbproc.engine.projections.fulltext.worker"
SLICES = [
    [ChunkTexts("Naïve", None, "C++ and parseQuery"), ChunkTexts("黑豹", "a › b", "", "/x/y.md")],
    [],
    [ChunkTexts("t", "s", "text", None, "https://example.org/a/b.html")],
]


def run(parent: int, frames: bytes) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", WORKER, str(parent)]
    return subprocess.run(
        command, input=frames, capture_output=True, check=False, env=ENVIRONMENT, timeout=LIVES
    )


def test_each_slice_is_answered_with_the_words_of_its_chunks() -> None:
    done = run(os.getpid(), b"".join(map(frame, SLICES)))
    answers, decode = io.BytesIO(done.stdout), packed_decoder(list[ChunkWords]).decode
    for chunks in SLICES:
        body = read_frame(answers)
        assert body is not None
        assert decode(body) == [words_of(chunk) for chunk in chunks]
    assert read_frame(answers) is None
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_it_serves_no_other_than_its_parent() -> None:
    done = run(os.getpid() + 1, frame(SLICES[0]))
    assert (done.returncode, done.stdout) == (1, b"")
