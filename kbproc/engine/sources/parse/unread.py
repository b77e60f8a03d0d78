"""Lists the kinds of content that parsers leave out of the text, with words and advice for people.

Each parser counts the parts that it leaves out, and the count is stored with the document, because
a knowledge base that loses a sentence silently is worse than one that refuses the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbproc.base.text.secrets import WORDS as SECRETS

# Kind → its words in the singular and in the plural.
KINDS: dict[str, tuple[str, str]] = {
    "replaced_bytes": ("byte that is not valid text", "bytes that are not valid text"),
    "pages_without_text": ("page without text", "pages without text"),
    "pages_without_unicode": (
        "page whose fonts do not name their letters",
        "pages whose fonts do not name their letters",
    ),
    "damaged_pages": ("damaged page", "damaged pages"),
    "pictures": ("picture", "pictures"),
    "embedded_files": ("embedded file", "embedded files"),
    "attachments": ("attachment", "attachments"),
    "quoted_passages": ("quoted mail", "quoted mails"),
    "signatures": ("signature", "signatures"),
    "annotations": ("note or form field", "notes and form fields"),
    "objects": ("embedded object", "embedded objects"),
    "long_outputs": ("long output within", "long outputs within"),
    "cells": ("cell beyond those that are read", "cells beyond those that are read"),
    "formulas": ("formula without a saved value", "formulas without saved values"),
    "headers_and_footers": ("header or footer", "headers and footers"),
    "comments": ("comment", "comments"),
    "deleted_passages": ("deleted passage", "deleted passages"),
    "hidden_passages": ("hidden passage", "hidden passages"),
    "page_furniture": ("menu, footer or other furniture", "menus, footers and other furniture"),
    "form_choices": ("choice of a form field", "choices of form fields"),
    "fields": ("front matter field", "front matter fields"),
    "terminal_codes": ("terminal control sequence", "terminal control sequences"),
    "refused_heads": (
        "front matter with a mistake in it, read line by line",
        "front matters with mistakes in them, read line by line",
    ),
    "tags": ("tag that can't be kept", "tags that can't be kept"),
    "conversations": ("conversation", "conversations"),
    "thoughts": ("thought of a model", "thoughts of a model"),
    "cut_outputs": ("long tool output within", "long tool outputs within"),
    "subagent_messages": ("message of a subagent", "messages of subagents"),
    "other_branches": ("message of another branch", "messages of other branches"),
    "copied_messages": (
        "message that another log holds",
        "messages that other logs hold",
    ),
    "damaged_lines": ("damaged line", "damaged lines"),
    **SECRETS,
}

_OCR = "ocr: true recognises the text of pages that are pictures, where tesseract is installed."
# Kind → advice for a person who wants it read.
ADVICE: dict[str, str] = {
    "pages_without_text": _OCR,
    "pages_without_unicode": "Text recognition (OCR) makes them readable; add the recognised file.",
    "formulas": "Excel or LibreOffice computes the values: open the workbook there and save it.",
    "attachments": "doc.ingest reads attachments; types that no parser reads stay out.",
}


def counted(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the counts above zero in the order of KINDS. Raises KeyError for an unknown kind."""
    if not counts:
        return {}
    if not counts.keys() <= KINDS.keys():
        unknown = sorted(counts.keys() - KINDS.keys())
        raise KeyError(f"no such kind of unread content: {unknown}")
    return {kind: counts[kind] for kind in KINDS if counts.get(kind)}


def total(all_counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Returns the sum of several counts, by kind."""
    sums: dict[str, int] = {}
    for counts in all_counts:
        for kind, count in counts.items():
            sums[kind] = sums.get(kind, 0) + count
    return sums


def in_words(counts: Mapping[str, int]) -> str:
    """Returns counts in words: {"comments": 2, "pictures": 1} → "2 comments, 1 picture"."""
    return ", ".join(
        f"{count:,} {KINDS[kind][count != 1] if kind in KINDS else kind.replace('_', ' ')}"
        for kind, count in counts.items()
    )


def advice(counts: Mapping[str, int]) -> str | None:
    """Returns the advice for the first of these kinds that has one, or None."""
    return next((ADVICE[kind] for kind in counts if kind in ADVICE), None)
