"""Cuts blocks into chunks that fit the embedding model and keep the document's structure.

The module also builds the exact string that is embedded, and decides where a text may be cut and
how much of it is repeated across a cut.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, groupby, islice, pairwise, takewhile
from operator import itemgetter

import msgspec

from kbproc.base.budget import beginning, byte_size
from kbproc.base.text.passage import Mark
from kbproc.engine.events.document import ChunkText
from kbproc.engine.sources.parse.blocks import PATH, Block, Kind
from kbproc.engine.sources.parse.progress import Report, no_report
from kbproc.engine.sources.word_counts import TokenCounter, WordCounts, reads_word_by_word

_CHARACTER = itemgetter(0)
_GAP = "\n\n"  # between blocks
MAX_TOKENS = 256
MIN_TOKENS = 32
# The limit exists because a wordpiece model takes a word of over 100 characters for one unknown
# token: by tokens alone, a chunk of base64 would grow without end.
CHARS_PER_TOKEN = 16
# A part of a section below this share of the budget is joined to its neighbour.
_TINY = 0.25
# A section of fewer tokens is joined to its neighbour: a heading and a few words answer nothing.
_ALONE = 16


def embed_text(
    title: str | None, section: str | None, text: str, *, max_tokens: int = MAX_TOKENS
) -> str:
    """Returns the exact string that is embedded: title, heading path and text, a line each.

    Title and path together get `max_tokens` × 3/4 bytes of UTF-8. That is about a fifth of the
    tokens in English and a quarter in Chinese; it is never all of them, because no tokenizer makes
    more tokens than bytes.
    """
    room = max_tokens * 3 // 4
    title, section = title or "", section or ""
    if section and (section == title or section.startswith(title + PATH)):
        title = ""
    if byte_size(title) + byte_size(section) > room:
        title = beginning(title, max(room // 2, room - byte_size(section))).rstrip()
        section = _tail(section, room - byte_size(title))
    return "\n".join(filter(None, (title, section, text)))


def _tail(text: str, size: int) -> str:
    """Returns the end of a heading path, because the deepest headings say the most."""
    data = text.encode("utf-8", "replace")
    return data[max(0, len(data) - size) :].decode("utf-8", "ignore").lstrip()


# Each byte of UTF-8: `a` in words of ASCII, else a space; and a dot for other signs of ASCII.
_WORDS = bytes(ord("a" if i < 128 and chr(i).isalnum() else " ") for i in range(256))
_SIGNS = bytes(
    ord("." if i < 128 and not (chr(i).isalnum() or chr(i).isspace()) else " ") for i in range(256)
)
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_WORD_BEYOND = re.compile(r"[\uac00-\ud7ff]|[^\W\d_\u2e80-\uffff]+|\S")


def count_words(text: str) -> int:
    """Estimates the tokens of a text without a tokenizer, rather too many than too few.

    An English word counts about 1.4 tokens, a CJK character one (Hangul two), a punctuation mark
    or symbol one.
    """
    # Bytes, not words, because every text that is written is counted, and its parts, too.
    data = b" " + text.encode("utf-8", "surrogatepass")
    words = data.translate(_WORDS)
    count = 2 + words.count(b" a") + words.count(b"aaaaa") + data.translate(_SIGNS).count(b".")
    if text.isascii():
        return count
    beyond = " ".join(_BEYOND_ASCII.findall(text))  # first, because this pattern is fast
    return count + sum(map(_weight, _WORD_BEYOND.findall(beyond)))


def _weight(word: str) -> int:
    """Returns the tokens of a word without letters of ASCII."""
    if len(word) > 1:
        return 1 + len(word) // 3
    return 2 if "\uac00" <= word <= "\ud7ff" else 1


def token_counter(tokenizer: str) -> TokenCounter:
    """Returns a counter for a `tokenizer.json`, without its truncation and padding."""
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(tokenizer)
    loaded.no_truncation()
    loaded.no_padding()

    def count(text: str) -> int:
        return len(loaded.encode(text))

    return WordCounts.by(loaded, count).of if reads_word_by_word(loaded) else count


def chunk(
    blocks: Sequence[Block],
    *,
    title: str | None,
    count: TokenCounter,
    max_tokens: int = MAX_TOKENS,
    overlap: int = 0,
    report: Report = no_report,
) -> list[ChunkText]:
    """Cuts `blocks` into chunks with `count(embed_text(...)) <= max_tokens` each.

    A chunk takes blocks of its section until the budget is full. A block that is too long is cut
    between sentences (code: lines), then words, then characters; up to `overlap` tokens of whole
    sentences are repeated across such a cut, or the head of a table. A tiny section joins its
    neighbour. No word is lost, and the order stays.
    """
    if max_tokens < MIN_TOKENS:
        raise ValueError(f"max_tokens is {max_tokens}: a chunk needs {MIN_TOKENS} or more")
    budget = _Budget(title, count, max_tokens)
    if len(blocks) == 1 and budget.fits(blocks[0].section, blocks[0].text):  # most notes
        return _whole(blocks[0])
    # Generators, because all words of a large text at once would take a hundred times its memory.
    drafts = (
        draft
        for section, run in groupby(blocks, key=lambda block: block.section)
        for draft in _pack(list(run), budget.of(section), budget, overlap)
    )
    joined = _join_tiny(drafts, budget)
    chunks = _chunks(part for draft in joined for part in _fitted(draft, budget))
    return list(_reported(chunks, sum(len(block.text) for block in blocks), report))


def _whole(block: Block) -> list[ChunkText]:
    """Returns a block as a chunk, as `_chunks` makes it; none of a block without text."""
    text = block.text.lstrip(None if block.kind == "prose" else "\n").rstrip()
    if block.turns or not text or len(text) != len(block.text):
        return list(_chunks([_PieceDraft(block.section, [_Atom(block, 0, block.text, 0)])]))
    marks = [] if block.line is None else [Mark(0, block.page, block.section, block.line)]
    return [ChunkText(text=text, page=block.page, section=block.section, marks=marks)]


def _reported(chunks: Iterable[ChunkText], total: int, report: Report) -> Iterator[ChunkText]:
    done = 0
    for passage in chunks:
        done += len(passage.joint or "") + len(passage.text) - passage.overlap
        report("character", min(done, total), total)
        yield passage


class _Atom(msgspec.Struct):
    """A stretch of a block that is not cut further; it begins at the block's character `start`."""

    block: Block
    start: int
    text: str
    cost: int

    @property
    def opens(self) -> bool:
        """Returns True if the block begins with this atom."""
        return self.start == 0


class _PieceDraft(msgspec.Struct):
    """A chunk before its ends are trimmed. The first `repeated` atoms are the overlap."""

    section: str | None
    atoms: list[_Atom]
    repeated: int = 0

    @property
    def cost(self) -> int:
        return sum(atom.cost for atom in self.atoms)

    @property
    def text(self) -> str:
        return _text(self.atoms)


def _text(atoms: list[_Atom]) -> str:
    parts = [_GAP + a.text if a.opens and i else a.text for i, a in enumerate(atoms)]
    return "".join(parts)


class _Budget:
    """The token limit of a chunk, and what the header of each section leaves of it for text."""

    def __init__(self, title: str | None, count: TokenCounter, max_tokens: int) -> None:
        self.title, self.max_tokens = title, max_tokens
        self._count = count
        self._room: dict[str | None, int] = {}

    def of(self, section: str | None) -> int:
        if section not in self._room:
            header = embed_text(self.title, section, "", max_tokens=self.max_tokens)
            self._room[section] = max(1, self.max_tokens - self._count(header))
        return self._room[section]

    def cost(self, text: str) -> int:
        """Returns the tokens of `text` within a longer text; more if it has many characters."""
        by_length = -(-len(text) // CHARS_PER_TOKEN)
        # A text of that length will be cut anyway, so it need not be tokenized whole.
        if by_length > 2 * self.max_tokens:
            return by_length
        return max(by_length, self._count(text) - self._special)

    @cached_property
    def _special(self) -> int:
        return self._count("")

    def fits(self, section: str | None, text: str) -> bool:
        if len(text) > CHARS_PER_TOKEN * self.max_tokens:
            return False
        embedded = embed_text(self.title, section, text, max_tokens=self.max_tokens)
        return self._count(embedded) <= self.max_tokens


def _pack(blocks: list[Block], limit: int, budget: _Budget, overlap: int) -> Iterator[_PieceDraft]:
    """Fills drafts with a section's blocks, and cuts as few blocks as possible.

    A block is cut if it is longer than the budget, or if the draft before it would be less than
    half full without a part of it.
    """
    draft = _PieceDraft(section=blocks[0].section, atoms=[])
    for block in blocks:
        uncut = _Atom(block, 0, block.text, budget.cost(block.text))
        used = draft.cost
        turned = bool(draft.atoms) and draft.atoms[-1].block.page != block.page
        if used and (turned or used + uncut.cost > limit) and used >= limit / 2:
            yield draft
            draft = _PieceDraft(section=draft.section, atoms=[])
            used = 0
        if used + uncut.cost <= limit:
            draft.atoms.append(uncut)
        else:
            head = _head_rows(block, _atoms(block, limit, budget), limit)
            draft = yield from _spill(draft, _atoms(block, limit, budget), head, limit, overlap)
    if draft.atoms:
        yield draft


def _spill(
    draft: _PieceDraft, atoms: Iterable[_Atom], head: list[_Atom], limit: int, overlap: int
) -> Generator[_PieceDraft, None, _PieceDraft]:
    """Adds a cut block's atoms, yields the drafts that fill up, and returns the last draft.

    A draft that begins within a table repeats the table's head; one within prose, some sentences.
    """
    used = draft.cost
    for i, atom in enumerate(atoms):
        if used and used + atom.cost > limit:
            room = limit - atom.cost
            if head and i >= len(head) and sum(row.cost for row in head) <= room:
                repeated = head
            else:
                repeated = [] if atom.opens else _overlap(draft.atoms, min(overlap, room))
            yield draft
            draft = _PieceDraft(draft.section, [*repeated], len(repeated))
            used = draft.cost
        draft.atoms.append(atom)
        used += atom.cost
    return draft


def _head_rows(block: Block, atoms: Iterable[_Atom], limit: int) -> list[_Atom]:
    """Returns the atoms of a table's head; none if they would fill over a third of each draft."""
    if block.kind != "table":
        return []
    end, cost = _head_end(block.text), 0
    head: list[_Atom] = []
    for atom in takewhile(lambda atom: atom.start < end, atoms):
        cost += atom.cost
        if cost > limit // 3:
            return []
        head.append(atom)
    return head


def _head_end(table: str) -> int:
    """Returns the character behind a table's head.

    The head is the first row; with the next line, if that draws a rule below the row, or if the
    first line is a caption.
    """
    ends = [line.end() for line in islice(_LINE.finditer(table), _HEAD_LINES)]
    if not ends:
        return len(table)
    has_cells = "|" in table[: ends[0]]
    second = table[ends[0] : ends[1]] if len(ends) > 1 else ""
    if _is_rule(second) if has_cells else "|" in second:
        return ends[1]
    return ends[0] if has_cells else _row_end(table, ends)


def _row_end(table: str, ends: list[int]) -> int:
    """Returns the end of the first row of CSV, whose quoted fields may hold line breaks."""
    return next((end for end in ends if table.count('"', 0, end) % 2 == 0), ends[0])


def _is_rule(line: str) -> bool:
    """Returns True for the line that Markdown draws below a table's head: "| --- | :-: |"."""
    return "-" in line and not line.strip("|-: \t\n")


def _overlap(atoms: list[_Atom], room: int) -> list[_Atom]:
    """Returns the last sentences of a draft that fit in `room` tokens.

    They are of one block, and never all atoms of the draft.
    """
    tail: list[_Atom] = []
    for atom in reversed(atoms[1:]):
        room -= atom.cost
        if room < 0 or atom.block.kind != "prose":
            break
        tail.insert(0, atom)
        if atom.opens:
            break
    return tail if tail and _END.search(tail[-1].text) else []


# A sentence ends behind its mark and closing quotes, before white space
# and no small letter; behind a CJK mark; at a blank line or a list's next item.
_SENTENCE = re.compile(
    # One class begins the pattern, because a search passes over all other characters fast.
    # Possessive, and only from a run's first mark, so that a megabyte of dots takes linear time.
    r"[.!?…。！？｡\n](?:(?<=[.!?…])(?<![.!?…]{2})[.!?…]*+[\"'”’)\]*_]*+\s++(?![a-z])|"
    r"(?<=[。！？｡])[。！？｡]*+[」』”’）]*+\s*+|"
    r"(?<=\n)(?:\s*\n|(?=\s*(?:[-*+•>|]|\d+[.)])\s)))"
)
_END = re.compile(r"[.!?…。！？｡][\"'”’)\]*_」』）]*\s*\Z")
_ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Z]|e\.g|i\.e|al|cf|vs|etc|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Fig|Figs|Eq|Sec|No|Nos|Vol|"
    r"pp|p|ca|approx|resp|Inc|Ltd|Co|Corp|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec|bzw|"
    r"z\.B|u\.a|d\.h|Nr|Bd|Hrsg))\.\s+\Z"
)
_LINE = re.compile(r"\n")
_HEAD_LINES = 8  # the most lines of a CSV row whose fields hold line breaks
_CLAUSE = re.compile(r"[,;:，、；：]\s*")
_SPACE = re.compile(r"\s+")


def sentences(text: str) -> list[str]:
    """Cuts `text` behind its sentences; the parts join to the text again."""
    return list(_sentences(text))


def _sentences(text: str) -> Iterator[str]:
    return _cut(text, _sentence_ends(text))


def _sentence_ends(text: str) -> Iterator[int]:
    for match in _SENTENCE.finditer(text):
        end = match.end()
        if not (match[0][0] == "." and _ABBREVIATION.search(text, max(0, end - 16), end)):
            yield end


def _cut(text: str, ends: Iterable[int]) -> Iterator[str]:
    return (text[a:b] for a, b in pairwise(chain([0], ends, [len(text)])) if a < b)


def _split_at(pattern: re.Pattern[str]) -> Callable[[str], Iterator[str]]:
    return lambda text: _cut(text, (match.end() for match in pattern.finditer(text)))


_FINER: dict[Kind, tuple[Callable[[str], Iterator[str]], ...]] = {
    "prose": (_sentences, _split_at(_LINE), _split_at(_CLAUSE), _split_at(_SPACE)),
    "code": (_split_at(_LINE), _split_at(_CLAUSE), _split_at(_SPACE)),
    "table": (_split_at(_LINE), _split_at(_CLAUSE), _split_at(_SPACE)),
}


def _atoms(block: Block, limit: int, budget: _Budget) -> Iterator[_Atom]:
    """Yields a block's sentences or lines, and smaller parts of those over `limit`."""
    start = 0
    for text, cost in _finer(block.text, _FINER[block.kind], limit, budget):
        yield _Atom(block, start, text, cost)
        start += len(text)


def _finer(
    text: str, levels: Sequence[Callable[[str], Iterator[str]]], limit: int, budget: _Budget
) -> Iterator[tuple[str, int]]:
    if not levels:
        yield from _characters(text, limit, budget)
        return
    for part in levels[0](text):
        cost = budget.cost(part)
        if cost <= limit:
            yield part, cost
        else:
            yield from _finer(part, levels[1:], limit, budget)


def _characters(text: str, limit: int, budget: _Budget) -> Iterator[tuple[str, int]]:
    """Halves a word that is over the limit by itself until the parts fit; yields them."""
    size = CHARS_PER_TOKEN * limit  # the most characters that `limit` tokens may stand for
    for start in range(0, len(text), size):
        part = text[start : start + size]
        cost = budget.cost(part)
        if cost <= limit or len(part) == 1:
            yield part, cost
        else:
            middle = len(part) // 2
            yield from _characters(part[:middle], limit, budget)
            yield from _characters(part[middle:], limit, budget)


def _join_tiny(drafts: Iterable[_PieceDraft], budget: _Budget) -> Iterator[_PieceDraft]:
    """Joins a small draft to the one before it, if both fit into one chunk."""
    last: _PieceDraft | None = None
    for draft in drafts:
        if last and not draft.repeated and _joinable(last, draft, budget):
            last = _PieceDraft(_shared(last, draft), last.atoms + draft.atoms, last.repeated)
        else:
            if last:
                yield last
            last = draft
    if last:
        yield last


def _joinable(earlier: _PieceDraft, later: _PieceDraft, budget: _Budget) -> bool:
    limit = budget.of(_shared(earlier, later))
    least, costs = _TINY * limit, (earlier.cost, later.cost)
    if earlier.section != later.section and not _is_code(earlier, later):
        least = min(least, _ALONE)
    return min(costs) < least and sum(costs) <= limit


def _is_code(*drafts: _PieceDraft) -> bool:
    """Returns True for code alone, whose small definitions are read together."""
    return all(atom.block.kind == "code" for draft in drafts for atom in draft.atoms)


def _shared(earlier: _PieceDraft, later: _PieceDraft) -> str | None:
    """Returns the section of two joined drafts.

    If one section lies within the other, it is the section of the larger draft, so that a small
    subsection does not give its name to text around it. Otherwise it is the path that both share.
    """
    a, b = (earlier.section or "").split(PATH), (later.section or "").split(PATH)
    larger = a if earlier.cost >= later.cost else b
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    nested = same == min(len(a), len(b)) or "" in (a[0], b[0])
    return PATH.join(larger if nested else a[:same]) or None


def _fitted(draft: _PieceDraft, budget: _Budget) -> Iterator[_PieceDraft]:
    """Yields the draft, or its halves if it is over the budget.

    That happens only with tokenizers that see across white space, for which a text can have more
    tokens than its parts together; for wordpiece it never does.
    """
    text = draft.text.strip()
    if budget.fits(draft.section, text) or len(text) < 2:
        yield draft
    elif len(draft.atoms) > 1:
        middle = max(1, len(draft.atoms) // 2)
        for atoms, repeated in (
            (draft.atoms[:middle], min(draft.repeated, middle)),
            (draft.atoms[middle:], max(0, draft.repeated - middle)),
        ):
            if repeated < len(atoms):
                yield from _fitted(_PieceDraft(draft.section, atoms, repeated), budget)
    else:
        atom = draft.atoms[0]
        middle = _middle(atom.text)
        for start, half in ((0, atom.text[:middle]), (middle, atom.text[middle:])):
            part = _Atom(atom.block, atom.start + start, half, 0)
            yield from _fitted(_PieceDraft(draft.section, [part]), budget)


def _middle(text: str) -> int:
    """Returns the character behind the white space nearest to the middle, else the middle."""
    ends = [match.end() for match in _SPACE.finditer(text) if 0 < match.end() < len(text)]
    return min(ends, key=lambda end: abs(end - len(text) // 2), default=len(text) // 2)


def _chunks(drafts: Iterable[_PieceDraft]) -> Iterator[ChunkText]:
    """Yields the drafts as chunks; white space at their ends goes into the next chunk's joint."""
    gap: str | None = None
    lines = _LineCounter()
    for draft in drafts:
        text = draft.text
        repeated = len(_text(draft.atoms[: draft.repeated])) if draft.repeated else 0
        blank = None if draft.atoms[0].block.kind == "prose" else "\n"
        start = len(text) - len(text.lstrip(blank))
        end = max(start, len(text.rstrip()))
        joint = "" if gap is None else gap + _GAP * draft.atoms[draft.repeated].opens
        if end <= max(start, repeated):  # the draft holds nothing new
            gap = None if gap is None else joint + text[repeated:]
            continue
        overlap = max(0, repeated - start)
        joint += text[repeated:start]
        yield ChunkText(
            text=text[start:end],
            page=draft.atoms[draft.repeated].block.page,
            section=draft.section,
            overlap=overlap,
            joint=None if gap is None or (joint == _GAP and not overlap) else joint,
            marks=_marks(draft, text, start, end, lines),
        )
        gap = text[max(end, repeated) :]


class _LineCounter:
    """Counts the lines above a character of a block; it goes on from the character before."""

    def __init__(self) -> None:
        self._block: Block | None = None
        self._at = self._above = 0

    def above(self, block: Block, at: int) -> int:
        if block is not self._block:
            self._block, self._at, self._above = block, 0, 0
        if at < self._at // 2:  # a table's head, which is repeated
            return block.text.count("\n", 0, at)
        first, last = sorted((at, self._at))
        passed = block.text.count("\n", first, last)
        self._above += passed if at == last else -passed
        self._at = at
        return self._above


def _marks(draft: _PieceDraft, text: str, start: int, end: int, lines: _LineCounter) -> list[Mark]:
    """Returns marks that place `text[start:end]` in the source.

    A repeated head has no line: the lines of a passage are those of the rows below it.
    """
    marks: list[Mark] = []
    passage = text[start:end]
    rows_from = _end_of_head(draft)
    for at, block, within in _stretches(draft, start, end):
        line = None
        if block.line is not None and at >= rows_from:
            line = block.line + lines.above(block, within)
        mark = Mark(at - start, _page_at(block, within), block.section, line)
        if not marks or not _goes_on(marks[-1], mark, passage):
            marks.append(mark)
    plain = Mark(0, draft.atoms[draft.repeated].block.page, draft.section)
    return [] if marks == [plain] else marks


def _page_at(block: Block, within: int) -> int | None:
    turn = bisect_right(block.turns, within, key=_CHARACTER)
    return block.turns[turn - 1][1] if turn else block.page


def _turns_in(block: Block, start: int, end: int) -> list[int]:
    """Returns the characters of a block from `start` to before `end` at which a page turns."""
    first, last = (bisect_left(block.turns, at, key=_CHARACTER) for at in (start, end))
    return [turn for turn, _ in block.turns[first:last]]


def _end_of_head(draft: _PieceDraft) -> int:
    """Returns the character behind a table's head that the draft repeats; 0 without a head."""
    if not draft.repeated:
        return 0
    head, row = draft.atoms[draft.repeated - 1], draft.atoms[draft.repeated]
    goes_on = head.block is row.block and head.start + len(head.text) == row.start
    return 0 if goes_on else len(_text(draft.atoms[: draft.repeated]))


def _stretches(draft: _PieceDraft, start: int, end: int) -> list[tuple[int, Block, int]]:
    """Returns the stretches of a draft, each as (draft character, block, block character).

    A stretch begins where a block begins, a repeated head ends or a page turns, the first one at
    `start`.
    """
    stretches: list[tuple[int, Block, int]] = []
    at = reached = 0
    for i, atom in enumerate(draft.atoms):
        goes_on = i and not atom.opens and atom.start == reached
        reached = atom.start + len(atom.text)
        at += len(_GAP) if atom.opens and i else 0
        turns = _turns_in(atom.block, atom.start, reached)
        for within in turns if goes_on else [atom.start, *turns]:
            place = at + within - atom.start
            if place <= start:
                stretches = [(start, atom.block, within + start - place)]
            elif place < end:
                stretches.append((place, atom.block, within))
        at += len(atom.text)
    return stretches


def _goes_on(last: Mark, mark: Mark, text: str) -> bool:
    """Returns True if `mark` adds nothing to `last`."""
    if (last.page, last.section) != (mark.page, mark.section):
        return False
    return mark.line == last.line_at(text, mark.at)
