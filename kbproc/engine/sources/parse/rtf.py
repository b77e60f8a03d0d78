"""Rich Text Format, as Microsoft's specification 1.9.1 describes it: what Word shows of it.

Notes and text boxes stand behind their paragraphs. Hidden and deleted text, comments, headers,
pictures and objects are counted. A group that begins with a word that is not known here and may be
skipped is skipped, because newer programs put their own data there.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block, Parsed, Scalar, clean_title
from kbproc.engine.sources.parse.titles import real_title

_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})?[ ]?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])"
    rb"|[\r\n]+|([^\\{}\r\n]+)",
    re.S,
)
_SIGNS = {
    "line": "\n",
    "lbr": "\n",
    "tab": "\t",
    "emdash": "—",
    "endash": "–",
    "emspace": "\u2003",
    "enspace": "\u2002",
    "qmspace": "\u2005",
    "bullet": "•",
    "lquote": "‘",
    "rquote": "’",
    "ldblquote": "“",
    "rdblquote": "”",
    "zwj": "\u200d",
    "zwnj": "\u200c",
}
# Signs of one character; the place for a hyphen at a line's end shows nothing.
_ESCAPES = {b"~": "\xa0", b"_": "\u2011", b"{": "{", b"}": "}", b"\\": "\\"}
_BREAKS = frozenset({"par", "sect", "page", "column"})
# Groups whose text Word shows elsewhere, or not at all.
_SKIPPED = frozenset(
    (
        *("fonttbl", "colortbl", "stylesheet", "filetbl", "listtable", "listoverridetable"),
        *("shprslt", "nonshppict", "mmathPict", "objdata", "objclass", "objname", "fldinst"),
        *("xe", "rxe", "txe", "tc", "ftnsep", "ftnsepc", "ftncn", "aftnsep", "aftnsepc"),
        *("aftncn", "nonesttables", "private", "bkmkstart", "bkmkend", "pn", "template"),
    )
)
# Groups that old programs may skip, and that hold what Word shows.
_READ = frozenset(
    (
        *("shpinst", "shppict", "ud", "moMath", "moMathPara", "do", "formfield", "ffl"),
        *("annotation", "pict", "object", "result", "fldrslt", "footnote", "listtext"),
    )
)
_MARGINS = frozenset(
    ("header", "headerl", "headerr", "headerf", "footer", "footerl", "footerr", "footerf")
)
# Groups with a text of their own, which is put together apart from the text around it.
_STORIES = _MARGINS | {"footnote", "annotation", "shptxt", "dptxbxtext"}
# Groups of which only the inner groups below are read.
_HOLDERS = frozenset({"upr", "sp", "info"})
_INNER = {"ud": "upr", "sn": "sp", "sv": "sp", "title": "info", "author": "info"}
_COUNTED = {"pict": "pictures", "object": "objects", "ffl": "form_choices"}
_CODEPAGES = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850", "ansi": "cp1252"}
_CHARSETS = {
    0: "cp1252",
    77: "mac_roman",
    78: "shift_jis",
    128: "cp932",
    129: "cp949",
    130: "johab",
    134: "gbk",
    136: "cp950",
    161: "cp1253",
    162: "cp1254",
    163: "cp1258",
    177: "cp1255",
    178: "cp1256",
    186: "cp1257",
    204: "cp1251",
    222: "cp874",
    238: "cp1250",
    254: "cp437",
    255: "cp850",
}
# Word writes the signs of symbol fonts as private characters.
_SYMBOL_SIGNS = range(0xF020, 0xF100)


def parse(data: bytes, name: str) -> Parsed:
    """Returns the paragraphs and tables of an RTF file.

    Raises `operation.failed` for a file that does not begin as RTF does.
    """
    if not data.lstrip().startswith(b"{\\rtf"):
        raise KbprocError("operation.failed", f"{name} is damaged or no RTF file.")
    reader = _RtfReader()
    reader.read(data)
    metadata: dict[str, Scalar] = {}
    if author := clean_title(reader.author):
        metadata["author"] = author
    return Parsed(
        title=real_title(reader.title),
        blocks=reader.blocks,
        metadata=metadata,
        unread=dict(+reader.unread),
    )


class _RtfGroup(msgspec.Struct):
    """The settings that hold up to the end of a group.

    `holder`: the group of which only some inner groups are read. `story`: the name of a text of its
    own that ends with the group.
    """

    is_skipped: bool = False
    is_hidden: bool = False
    is_deleted: bool = False
    in_table: bool = False
    fallback: int = 1  # characters behind a sign of Unicode that stand for it in old programs
    font: int = -1
    holder: str = ""
    story: str = ""
    is_optional: bool = False


class _RtfStory:
    """A text with its paragraphs, and the table that is being read."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.behind: list[Block] = []
        self.parts: list[str] = []
        self.cells: list[str] = []
        self.rows: list[str] = []

    def end_paragraph(self, *, in_table: bool) -> None:
        if in_table:
            self.parts.append(" ")
            return
        self.end_table()
        text = "".join(self.parts)
        self.parts.clear()
        if text.strip():
            self.blocks.append(Block(text=text))
        self.blocks += self.behind
        self.behind.clear()

    def end_cell(self) -> None:
        self.cells.append(" ".join("".join(self.parts).split()))
        self.parts.clear()

    def end_row(self) -> None:
        if "".join(self.parts).strip():
            self.end_cell()
        self.parts.clear()
        if any(self.cells):
            self.rows.append(" | ".join(self.cells).rstrip(" |"))
        self.cells.clear()

    def end_table(self) -> None:
        if self.cells:
            self.end_row()
        if self.rows:
            self.blocks.append(Block(text="\n".join(self.rows), kind="table"))
            self.rows.clear()


class _RtfReader:
    def __init__(self) -> None:
        self.unread: Counter[str] = Counter()
        self.title: str | None = None
        self.author: str | None = None
        self._story = _RtfStory()
        self._stories: list[_RtfStory] = []
        self._group = _RtfGroup()
        self._groups: list[_RtfGroup] = []
        self._bytes = bytearray()
        self._fallback = 0
        self._codepage = "cp1252"
        self._charsets: dict[int, str] = {}
        self._default_font = -1
        self._notes = 0
        self._property = ""
        self._unseen = ""  # the kind of the last text, if it is one that Word does not show

    @property
    def blocks(self) -> list[Block]:
        return self._story.blocks

    def read(self, data: bytes) -> None:
        at: int | None = 0
        while at is not None:
            at = self._read_from(data, at)
        self._flush()
        while self._groups:  # the file is cut
            self._end()
        self._story.end_paragraph(in_table=False)

    def _read_from(self, data: bytes, at: int) -> int | None:
        """Reads up to bytes that are no text, and returns where they end; None at the end."""
        for match in _TOKEN.finditer(data, at):
            word, number, code, sign, brace, text = match.groups()
            if text is not None:
                self._add_bytes(text)
            elif code is not None:
                self._add_bytes(bytes.fromhex(code.decode()))
            elif brace is not None:
                self._flush()
                if brace == b"{":
                    self._groups.append(self._group)
                    self._group = msgspec.structs.replace(self._group, story="", is_optional=False)
                else:
                    self._end()
                    if not self._groups:
                        return None
            elif word == b"bin" and number and int(number) > 0:
                return match.end() + int(number)
            elif word is not None:
                self._flush()
                self._word(word.decode(), None if number is None else int(number))
            elif sign is not None:
                self._sign(sign)
        return None

    # -------------------------------------------------------------- groups

    def _end(self) -> None:
        """Ends a group, and the text of its own that it may hold."""
        name = self._group.story
        self._group = self._groups.pop() if self._groups else self._group
        if not name:
            return
        story, self._story = self._story, self._stories.pop()
        story.end_paragraph(in_table=False)
        text = "\n".join(block.text.strip() for block in story.blocks)
        if name == "footnote" and text:
            self._notes += 1
            self._story.behind.append(Block(text=f"[{self._notes}] {text}"))
        elif name in ("shptxt", "dptxbxtext"):
            self._story.behind += story.blocks
        elif name == "annotation":
            self.unread["comments"] += 1
        elif name in _MARGINS:
            self.unread["headers_and_footers"] += bool(text)
        elif name == "title":
            self.title = text
        elif name == "author":
            self.author = text
        elif name == "sn":
            self._property = text
        elif name == "sv":
            self._drawn(" ".join(text.split()))

    def _begin_story(self, name: str) -> None:
        self._stories.append(self._story)
        self._story = _RtfStory()
        self._group.story = name
        self._group.in_table = False

    def _drawn(self, words: str) -> None:
        """Adds what a property of a drawing shows: its description, or the words of WordArt."""
        if self._property == "wzDescription" and real_title(words):
            self._story.behind.append(Block(text=f"[{words}]"))
        elif self._property == "gtextUNICODE" and words:
            self._story.behind.append(Block(text=words))

    # -------------------------------------------------------------- words

    def _word(self, word: str, number: int | None) -> None:
        group = self._group
        if group.is_optional:
            group.is_optional = False
            group.is_skipped = group.is_skipped or word not in _READ
        if word in _INNER and group.holder == _INNER[word]:
            group.is_skipped, group.holder = False, ""
            if word != "ud":
                self._begin_story(word)
        elif word == "f":
            group.font = -1 if number is None else number
        elif word in ("fcharset", "cpg"):
            self._know_font(word, number or 0)
        elif not group.is_skipped:
            self._shown_word(group, word, number)

    def _shown_word(self, group: _RtfGroup, word: str, number: int | None) -> None:
        """Reads a word where text is shown."""
        if word in _SIGNS:
            self._add(_SIGNS[word])
        elif word == "u" and number is not None:
            self._add(_character(number))
            self._fallback = group.fallback
        elif word in _BREAKS:
            self._story.end_paragraph(in_table=group.in_table)
        elif word in _COUNTED:
            self.unread[_COUNTED[word]] += 1
            group.is_skipped = word != "object"
        elif word in _HOLDERS:
            group.is_skipped, group.holder = True, word
        elif word in _SKIPPED or (word[0] == "m" and word.endswith("Pr")):
            group.is_skipped = True
        elif word in _STORIES:
            self._begin_story(word)
        else:
            self._format(group, word, number)

    def _format(self, group: _RtfGroup, word: str, number: int | None) -> None:
        """Reads a word that changes how text is read, or that ends a cell or a row."""
        if word == "v":
            group.is_hidden = number != 0
        elif word == "deleted":
            group.is_deleted = number != 0
        elif word == "plain":
            group.is_hidden, group.font = False, self._default_font
        elif word in ("intbl", "pard"):
            group.in_table = word == "intbl"
        elif word == "cell":
            self._story.end_cell()
        elif word == "row":
            self._story.end_row()
        elif word in ("nestcell", "nestrow"):
            self._story.parts.append(" | " if word == "nestcell" else " ")
        elif word == "uc":
            group.fallback = max(0, number or 0)
        elif word == "deff" and number is not None:
            group.font = self._default_font = number
        elif word == "ansicpg":
            self._codepage = _codec(f"cp{number}") or self._codepage
        elif word in _CODEPAGES:
            self._codepage = _CODEPAGES[word]

    def _know_font(self, word: str, number: int) -> None:
        codec = _codec(f"cp{number}") if word == "cpg" else _CHARSETS.get(number)
        if codec:
            self._charsets[self._group.font] = codec

    def _sign(self, sign: bytes) -> None:
        if sign == b"*":
            self._group.is_optional = True
            return
        self._flush()
        if sign in _ESCAPES:
            self._add(_ESCAPES[sign])
        elif sign in (b"\n", b"\r") and not self._group.is_skipped:
            self._story.end_paragraph(in_table=self._group.in_table)

    # -------------------------------------------------------------- texts

    def _add_bytes(self, data: bytes) -> None:
        """Adds characters of a code page; one may be of two bytes, so they are decoded later."""
        if self._group.is_skipped:
            return
        if self._fallback:
            count = min(self._fallback, len(data))
            self._fallback -= count
            data = data[count:]
        self._bytes += data

    def _flush(self) -> None:
        self._fallback = 0
        if self._bytes:
            codec = self._charsets.get(self._group.font, self._codepage)
            self._add(self._bytes.decode(codec, "replace"))
            self._bytes.clear()

    def _add(self, text: str) -> None:
        group = self._group
        if group.is_skipped:
            return
        if not (group.is_hidden or group.is_deleted):
            self._story.parts.append(text)
            self._unseen = ""
        elif text.strip():
            kind = "deleted_passages" if group.is_deleted else "hidden_passages"
            self.unread[kind] += self._unseen != kind
            self._unseen = kind


def _character(code: int) -> str:
    """Returns a character by its number, of which Word writes some as negative ones."""
    code += 0x10000 if code < 0 else 0
    if code in _SYMBOL_SIGNS:
        return "•"
    return chr(code) if 0 <= code < 0x110000 else "\ufffd"


def _codec(name: str) -> str | None:
    try:
        return codecs.lookup(name).name
    except LookupError:
        return None
