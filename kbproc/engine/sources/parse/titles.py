"""Tells titles that name a document from those that only name a file or a program.

The patterns match titles that programs write into a file's properties on their own.
"""

from __future__ import annotations

import re

from kbproc.engine.sources.parse.blocks import clean_title

# A file's name at the end; layout programs write the number of a page behind it.
_FILE = re.compile(
    r"\S\.(?:ai|bmp|cdr|cwk|doc|docm|docx|dot|dotx|dvi|dwg|eps|fm|gif|htm|html|indb|indd|"
    r"jpeg|jpg|key|md|odp|ods|odt|p65|pages|pdf|pmd|png|pps|ppsx|ppt|pptx|ps|psd|"
    r"pub|qxd|qxp|rtf|svg|tex|tif|tiff|tmp|txt|vsd|wpd|wps|xhtml|xls|xlsm|xlsx|"
    r"xml)(?:[\s_-]*\d+)?$",
    re.I,
)
_PRINTED = re.compile(
    r"(?:microsoft\s+)?(?:office\s+)?(?:word|excel|powerpoint|publisher)\s+- ", re.I
)
_ADDRESS = re.compile(r"(?:https?|file|ftp)://\S+$|[a-z]:\\|\\\\|/\S*$|about:", re.I)
_NO_NAME = re.compile(
    r"""[\[(<{"']*(?:
        untitled | unnamed | unknown | no\s+title | none | null | n/?a | title | document\s+title
        | unbenannt | ohne\s+titel | titel | sans\s+titre | titre | sin\s+t[ií]tulo | t[ií]tulo
        | senza\s+titolo | titolo | sem\s+t[ií]tulo | naamloos | zonder\s+titel | namnl[oö]s
        | uten\s+navn | bez\s+n[aá]zvu | bez\s+tytu[lł]u | без\s+(?:имени|названия) | 無題
        | 无标题 | 제목\s*없음
        | (?:microsoft\s+)?(?:word|excel|powerpoint)[\s-]*(?:document|dokument|presentation
            |pr[aä]sentation|presentaci[oó]n|pr[eé]sentation|worksheet)
        | do[ck]ument[oa]? | документ | pr[aä]sentation | pr[eé]sentation | presentaci[oó]n
        | presentazione | presentatie | book | mappe | classeur | libro | sheet | tabelle
        | slide | folie | diapositiv[eao] | diapositive | page | seite | blank\s+page | layout
        | scan(?:ned)?(?:\s+(?:document|image|page))? | image | img
        | picture | print | printout | test
        | (?:table\s+of\s+)?contents | inhalt(?:sverzeichnis)? | sommaire
        | table\s+des\s+mati[eè]res
        | untitled\s+document | new\s+document | neues\s+dokument | nouveau\s+document
    )[\])>}"']*+[\s_#.-]*+(?:\(?\d++\)?)?[\])>}"']*+$""",
    re.I | re.X,
)
_GARBAGE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd\ufffe\uffff\ue000-\uf8ff]")


def real_title(text: str | None) -> str | None:
    """Returns `text` as a title; None if it names no document: "Document1", "report_v2.docx"."""
    if not text:
        return None
    text = _decoded(text[:2000])
    if _GARBAGE.search(text):
        return None
    title = clean_title(text)
    if not title or sum(map(str.isalpha, title)) < 2:
        return None
    patterns = (_PRINTED.match, _ADDRESS.match, _NO_NAME.match, _FILE.search)
    if any(matches(title) for matches in patterns):
        return None
    # One word with underscores is a file's name, because people do not write titles so.
    return None if "_" in title and " " not in title else title


def _decoded(text: str) -> str:
    """Decodes text in UTF-16 that was read as Latin-1; returns other text as it is."""
    head = text[:2]
    if head not in ("þÿ", "ÿþ") and "\0" not in text[:4]:
        return text.strip("\0")
    try:
        data = text.encode("latin-1")
    except UnicodeEncodeError:
        return text
    little = head == "ÿþ" or (head != "þÿ" and data[1:2] == b"\0")
    encoding = "utf-16-le" if little else "utf-16-be"
    return data[: len(data) // 2 * 2].decode(encoding, "replace").lstrip("\ufeff").strip("\0")
