"""Which command helps with a red test, by where the test stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from tests.kit.start import REPO

# A prefix of a test's id → what to run; the longest one counts.
ADVICE = {
    "tests/house/test_prose.py": "mend the named lines; `.venv/bin/python -m tools.prose FILE` "
    "lists them; `KBPROC_UPDATE_DOCS=1 .venv/bin/pytest tests/house/test_prose.py` "
    "writes lower numbers",
    "tests/house/test_performance.py": "`.venv/bin/python -m bench.performance` writes the "
    "pages anew",
    "tests/house/test_numbers.py": "`make generate` writes the numbers; a new one gets a template "
    "in tools/generate/numbers.py, or stands on a page that its section links",
    "tests/house": "AGENTS.md has the rules; `pytest {test}` tries this one again",
    "tests/calls/test_schemas.py": "`make generate` writes schemas and clients from the "
    "declarations; schemas/v1 only grows",
    "tests/calls/test_bundle.py": "`make generate` writes schemas and clients anew",
    "tests/calls/test_outlines.py": "`make generate` writes kbproc/methods/outlines.json anew",
    "tests/mcp/test_transcripts.py": "`pytest tests/mcp/test_transcripts.py --snapshot-update` "
    "writes the goldens; read `git diff golden` before you keep them",
    "tests/hooks/test_context.py": "`pytest tests/hooks/test_context.py --snapshot-update` "
    "writes the goldens; read `git diff golden` before you keep them",
    "tests/sources/parse/test_conversations.py": "`pytest tests/sources/parse/test_conversations.py"
    " --snapshot-update` writes the goldens; read `git diff golden` before you keep them",
    "tests/conversations": "`pytest tests/conversations --snapshot-update` writes the goldens; "
    "read `git diff golden` before you keep them",
    "tests/house/test_quality.py": "`.venv/bin/python -m bench.quality` writes the pages anew",
    "tests/house/test_shared.py": "`.venv/bin/python -m bench.cluster` measures, and writes the "
    "page",
    "tests/house/test_patience.py": "tests/kit/patience.py has the bounds, and says what to do",
    "tests/repo/test_shown.py": "`KBPROC_UPDATE_DOCS=1 .venv/bin/pytest tests/repo` writes what "
    "docs show; read the diff",
}


def advice(test: str) -> str | None:
    """Returns the command that helps with this test, by its id; None where none does."""
    texts = {prefix: text for prefix, text in ADVICE.items() if test.startswith(prefix)}
    text = texts[max(texts, key=len)] if texts else None
    return text and text.replace("{test}", test).replace("`pytest ", "`.venv/bin/pytest ")


def why_none(names: Iterable[str], keywords: str) -> Iterator[str]:
    """Yields why no test was run: a file that is not there, or a word that no test's name has."""
    absent = [name for name in names if not (REPO / name.partition("::")[0]).exists()]
    paths = [str(path.relative_to(REPO)) for path in (REPO / "tests").rglob("*")]
    tests = [path for path in paths if "__pycache__" not in path and not path.endswith(".pyc")]
    for name in absent:
        path = name.partition("::")[0]
        close = [test for test in tests if path in test][:3]
        close = close or get_close_matches(path, tests, n=3, cutoff=0.4)
        yield f"{name} is not there" + (f"; is it {' or '.join(close)}?" if close else "")
    if not absent:
        yield (
            f"no test's name fits {keywords!r}" if keywords else "the named files have no such test"
        )
    yield "`make test ONLY=tests/search` runs a folder, `ONLY='tests/search -k words'` a part of it"
