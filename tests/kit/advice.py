"""Which command helps with a red test, by where the test stands."""

from __future__ import annotations

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
