"""Makes the description that a package index shows, from README.md.

An index knows none of the repository's files, so a relative link or picture leads nowhere there.
The docs come along with the package: a link to a page becomes the command that shows it.
"""

from __future__ import annotations

import re
from pathlib import Path

PATH = "packaging/description.md"
_PICTURE = re.compile(r"^!\[[^\]]*\]\([^)]*\)\n\n", re.MULTILINE)
# A link that stands alone in parentheses becomes the command alone.
_LINK = re.compile(
    r"(?P<alone>(?<=\()\[[^\]]*\]\((?P<first>[^):]+)\)(?=\)))"
    r"|\[(?P<text>[^\]]*)\]\((?P<path>[^):]+)\)"
)
_PAGE = re.compile(r"docs/([\w/-]+)\.md(#[\w-]+)?")
# A line of a checkout → the same line for a package.
_INSTEAD = {
    "pip install .      # in a checkout; Python": "pip install kbproc    # Python",
    "kbproc start docs  # shows": "kbproc start ~/notes  # shows",
    "| `pip install .` |": "| `pip install kbproc` |",
    "pip install '.[cluster]'": "pip install 'kbproc[cluster]'",
    "`make demo` installs": "In a checkout `make demo` installs",
    "\n`make demo-cluster` starts": "\nIn a checkout `make demo-cluster` starts",
}


def description(readme: str) -> str:
    """Returns the text. Raises ValueError if README.md has changed under a replacement."""
    text = _PICTURE.sub("", readme)
    for old, new in _INSTEAD.items():
        if old not in text:
            raise ValueError(
                f"README.md has no {old!r} any more; see tools/generate/description.py"
            )
        text = text.replace(old, new)
    return _LINK.sub(_as_command, text)


def _as_command(match: re.Match[str]) -> str:
    path, text = match["first"] or match["path"], match["text"]
    page = _PAGE.fullmatch(path)
    command = f"`kbproc docs {page[1]}{page[2] or ''}`" if page else f"`{path}`"
    return command if text is None or text in (path, Path(path).name) else f"{text} ({command})"
