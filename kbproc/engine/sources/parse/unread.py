"""Kinds of content that a parser saw in a source and left out of the text.

Owns: the kinds, their words for people, and what helps against each.
Refuses to know: which parser counts which kind.

A knowledge base that loses a sentence silently is worse than one that refuses the file: so each
parser counts what it leaves out, and the count stands with the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# Kind → the words for one and for several.
KINDS: dict[str, tuple[str, str]] = {
    "replaced_bytes": ("byte that is no valid text", "bytes that are no valid text"),
    "pages_without_text": ("page without text", "pages without text"),
    "pages_without_unicode": (
        "page whose fonts do not name their letters",
        "pages whose fonts do not name their letters",
    ),
    "damaged_pages": ("damaged page", "damaged pages"),
    "pictures": ("picture", "pictures"),
    "embedded_files": ("embedded file", "embedded files"),
    "attachments": ("attachment", "attachments"),
    "annotations": ("note or form field", "notes and form fields"),
    "objects": ("embedded object", "embedded objects"),
    "headers_and_footers": ("header or footer", "headers and footers"),
    "comments": ("comment", "comments"),
    "deleted_passages": ("deleted passage", "deleted passages"),
    "hidden_passages": ("hidden passage", "hidden passages"),
    "page_furniture": ("menu, footer or other furniture", "menus, footers and other furniture"),
    "form_choices": ("form field's choice", "form fields' choices"),
    "fields": ("field of its head", "fields of their heads"),
    "terminal_codes": ("terminal control sequence", "terminal control sequences"),
    "refused_heads": (
        "head that its YAML or TOML refuses, read line by line",
        "heads that their YAML or TOML refuses, read line by line",
    ),
    "tags": ("tag that can't be kept", "tags that can't be kept"),
}

_OCR = "Text recognition (OCR) makes them readable; add the recognised file."
# Kind → what a person can do to have it read.
ADVICE: dict[str, str] = {
    "pages_without_text": _OCR,
    "pages_without_unicode": _OCR,
    "attachments": "Save the attachments as files and add those.",
}


def counted(counts: Mapping[str, int]) -> dict[str, int]:
    """The kinds that occurred, in the order of KINDS. Raises KeyError for an unknown kind."""
    unknown = counts.keys() - KINDS.keys()
    if unknown:
        raise KeyError(f"no such kind of unread content: {sorted(unknown)}")
    return {kind: counts[kind] for kind in KINDS if counts.get(kind)}


def total(all_counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of several counts, by kind."""
    sums: dict[str, int] = {}
    for counts in all_counts:
        for kind, count in counts.items():
            sums[kind] = sums.get(kind, 0) + count
    return sums


def in_words(counts: Mapping[str, int]) -> str:
    """{"comments": 2, "pictures": 1} → "2 comments, 1 picture"."""
    return ", ".join(
        f"{count:,} {KINDS[kind][count != 1] if kind in KINDS else kind.replace('_', ' ')}"
        for kind, count in counts.items()
    )


def advice(counts: Mapping[str, int]) -> str | None:
    """The advice of ADVICE for the first of these kinds that has one."""
    return next((ADVICE[kind] for kind in counts if kind in ADVICE), None)
