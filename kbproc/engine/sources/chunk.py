"""From blocks to chunks: pieces that fit the embedding model and keep the structure.

Owns: the string that is embedded, where text may be cut, what overlaps.
Refuses to know: formats, models; a token counter is handed in.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, groupby, islice, pairwise, takewhile
from operator import itemgetter

import msgspec

from kbproc.sources.parse.blocks import PATH, Block, Kind
from kbproc.sources.parse.progress import Report, no_report
from kbproc.sources.word_counts import WordCounts, reads_word_by_word
from kbproc.text.passage import Mark

TokenCounter = Callable[[str], int]
"""Tokens of a text as the model reads it, its special tokens included."""

_PLACE = itemgetter(0)
# Between blocks.
_GAP = "\n\n"
MAX_TOKENS = 256
MIN_TOKENS = 32
# A wordpiece model takes a word of over 100 characters for one unknown token,
# so tokens alone would let a chunk of base64 grow without end.
CHARS_PER_TOKEN = 16
# A piece below this share of the budget is joined to its neighbour's section.
_TINY = 0.25


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """One passage. `page` is that of its first new words, `section` what its parts share.

    The first `overlap` characters of `text` repeat the end of the chunk before, or the head of the
    table that goes on. `joint`: the characters between the chunk before and the new part of this
    one; None: a blank line. `marks`: where in the source each part of `text`
    stands, if `page` and `section` do not say it for all of it.
    """

    text: str
    page: int | None = None
    section: str | None = None
    overlap: int = 0
    joint: str | None = None
    marks: list[Mark] = []


def embed_text(
    title: str | None, section: str | None, text: str, *, max_tokens: int = MAX_TOKENS
) -> str:
    """The exact string that is embedded: title, heading path, text, a line each.

    Title and path together get `max_tokens` × 3/4 bytes of UTF-8: about a
    fifth of the tokens in English, a quarter in Chinese, and since no
    tokenizer makes more tokens than bytes, never all of them.
    """
    room = max_tokens * 3 // 4
    title, section = title or "", section or ""
    if section == title or section.startswith(title + PATH):
        title = ""
    if _bytes(title) + _bytes(section) > room:
        title = _head(title, max(room // 2, room - _bytes(section)))
        section = _tail(section, room - _bytes(title))
    return "\n".join(part for part in (title, section, text) if part)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _head(text: str, size: int) -> str:
    return text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore").rstrip()


def _tail(text: str, size: int) -> str:
    """The end of a heading path: the deepest headings say the most."""
    kept = text.encode("utf-8", "replace")
    return kept[max(0, len(kept) - size) :].decode("utf-8", "ignore").lstrip()


# ASCII by kind: `a` in words, white space as it is, any other a sign.
_KINDS = bytes(
    ord("a" if chr(i).isalnum() else " " if chr(i).isspace() else ".") if i < 128 else 0
    for i in range(256)
)
_WORD = re.compile(r"[A-Za-z0-9]+|[\uac00-\ud7ff]|[^\W\d_A-Za-z\u2e80-\uffff]+|[^\w\s]|_|\w")


def count_words(text: str) -> int:
    """An estimate of tokens for where no tokenizer is at hand, on the generous side.

    English comes to about 1.4 a word, CJK to one a character (Hangul to two),
    punctuation and symbols to one each.
    """
    if not text.isascii():
        return 2 + sum(map(_weight, _WORD.findall(text)))
    # The same in a quarter of the time: every text that is written is counted.
    kinds = b" " + text.encode().translate(_KINDS)
    words = kinds.count(b" a") + kinds.count(b".a")
    return 2 + words + kinds.count(b".") + kinds.count(b"aaaaa")


def _weight(word: str) -> int:
    if word.isascii():
        return 1 + len(word) // 5
    if len(word) > 1:
        return 1 + len(word) // 3
    return 2 if "\uac00" <= word <= "\ud7ff" else 1


def token_counter(tokenizer: str) -> TokenCounter:
    """A counter for a `tokenizer.json`, which may truncate and pad; the counter doesn't."""
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(tokenizer)
    loaded.no_truncation()
    loaded.no_padding()

    def count(text: str) -> int:
        return len(loaded.encode(text))

    return WordCounts(count).of if reads_word_by_word(loaded) else count


def chunk(
    blocks: Sequence[Block],
    *,
    title: str | None,
    count: TokenCounter,
    max_tokens: int = MAX_TOKENS,
    overlap: int = 0,
    report: Report = no_report,
) -> list[Chunk]:
    """Cut `blocks` into chunks with `count(embed_text(...)) <= max_tokens` each.

    Blocks of a section are filled up to the budget; one that is too long is cut
    between sentences (code: lines), then words, then characters, and up to
    `overlap` tokens of whole sentences are repeated across such a cut; of a table it is
    its head. A small section joins its neighbour. No word is lost; order is kept.
    """
    if max_tokens < MIN_TOKENS:
        raise ValueError(f"max_tokens is {max_tokens}: a chunk needs {MIN_TOKENS} or more")
    budget = _Budget(title, count, max_tokens)
    if len(blocks) == 1 and budget.fits(blocks[0].section, blocks[0].text):  # most notes are so
        [block] = blocks
        return list(_chunks([_Piece(block.section, [_Atom(block, 0, block.text, 0)])]))
    # Piece by piece: all words of a large text at once would take a hundred times its memory.
    pieces = (
        piece
        for section, run in groupby(blocks, key=lambda block: block.section)
        for piece in _pack(list(run), budget.of(section), budget, overlap)
    )
    joined = _join_tiny(pieces, budget)
    chunks = _chunks(fit for piece in joined for fit in _fitted(piece, budget))
    return list(_reported(chunks, sum(len(block.text) for block in blocks), report))


def _reported(chunks: Iterable[Chunk], total: int, report: Report) -> Iterator[Chunk]:
    done = 0
    for one in chunks:
        done += len(one.joint or "") + len(one.text) - one.overlap
        report("character", min(done, total), total)
        yield one


class _Atom(msgspec.Struct):
    """A stretch of a block that is not cut further, from the block's character `start` on."""

    block: Block
    start: int
    text: str
    cost: int

    @property
    def opens(self) -> bool:
        """Whether the block begins with it."""
        return self.start == 0


class _Piece(msgspec.Struct):
    """A chunk in the making. `repeated` atoms at its start are the overlap."""

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
    """Counts tokens, and knows how many a section's header leaves for text."""

    def __init__(self, title: str | None, count: TokenCounter, max_tokens: int) -> None:
        self.title, self.max_tokens = title, max_tokens
        self._count = count
        self._left: dict[str | None, int] = {}

    def of(self, section: str | None) -> int:
        if section not in self._left:
            header = embed_text(self.title, section, "", max_tokens=self.max_tokens)
            self._left[section] = max(1, self.max_tokens - self._count(header))
        return self._left[section]

    def cost(self, text: str) -> int:
        """Tokens of `text` within a longer one, or more where it is long for its tokens."""
        by_length = -(-len(text) // CHARS_PER_TOKEN)
        # Beyond that length it will be cut anyway, and need not be tokenized whole.
        if by_length > 2 * self.max_tokens:
            return by_length
        return max(by_length, self._count(text) - self._special)

    @cached_property
    def _special(self) -> int:
        return self._count("")

    def fits(self, section: str | None, text: str) -> bool:
        if len(text) > CHARS_PER_TOKEN * self.max_tokens:
            return False
        whole = embed_text(self.title, section, text, max_tokens=self.max_tokens)
        return self._count(whole) <= self.max_tokens


def _pack(blocks: list[Block], limit: int, budget: _Budget, overlap: int) -> Iterator[_Piece]:
    """Fill pieces with a section's blocks; a block is cut only if it must be.

    One that is longer than the budget must, and so must one that would leave
    the piece before it less than half full.
    """
    piece = _Piece(section=blocks[0].section, atoms=[])
    for block in blocks:
        whole = _Atom(block, 0, block.text, budget.cost(block.text))
        used = piece.cost
        turned = bool(piece.atoms) and piece.atoms[-1].block.page != block.page
        if used and (turned or used + whole.cost > limit) and used >= limit / 2:
            yield piece
            piece = _Piece(section=piece.section, atoms=[])
            used = 0
        if used + whole.cost <= limit:
            piece.atoms.append(whole)
        else:
            head = _head_rows(block, _atoms(block, limit, budget), limit)
            piece = yield from _spill(piece, _atoms(block, limit, budget), head, limit, overlap)
    if piece.atoms:
        yield piece


def _spill(
    piece: _Piece, atoms: Iterable[_Atom], head: list[_Atom], limit: int, overlap: int
) -> Generator[_Piece, None, _Piece]:
    """Add a cut block's atoms, opening pieces as they fill up; returns the last.

    A piece that begins within a table repeats the table's head, one within prose some sentences.
    """
    used = piece.cost
    for i, atom in enumerate(atoms):
        if used and used + atom.cost > limit:
            room = limit - atom.cost
            if head and i >= len(head) and sum(row.cost for row in head) <= room:
                repeated = head
            else:
                repeated = [] if atom.opens else _overlap(piece.atoms, min(overlap, room))
            yield piece
            piece = _Piece(piece.section, [*repeated], len(repeated))
            used = piece.cost
        piece.atoms.append(atom)
        used += atom.cost
    return piece


def _head_rows(block: Block, atoms: Iterable[_Atom], limit: int) -> list[_Atom]:
    """The atoms of a table's head; none where it would take over a third of each piece."""
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
    """Behind a table's first row, or behind the next line if that draws a rule below it, or if the
    first is a caption."""
    ends = [line.end() for line in islice(_LINE.finditer(table), _HEAD_LINES)]
    if not ends:
        return len(table)
    has_cells = "|" in table[: ends[0]]
    second = table[ends[0] : ends[1]] if len(ends) > 1 else ""
    if _is_rule(second) if has_cells else "|" in second:
        return ends[1]
    return ends[0] if has_cells else _row_end(table, ends)


def _row_end(table: str, ends: list[int]) -> int:
    """The end of the first row of CSV, which has line breaks where a field is quoted."""
    return next((end for end in ends if table.count('"', 0, end) % 2 == 0), ends[0])


def _is_rule(line: str) -> bool:
    """True for what Markdown draws below a table's head: "| --- | :-: |"."""
    return "-" in line and not line.strip("|-: \t\n")


def _overlap(atoms: list[_Atom], room: int) -> list[_Atom]:
    """The last sentences of a piece that fit in `room` tokens, of one block, not all of them."""
    kept: list[_Atom] = []
    for atom in reversed(atoms[1:]):
        room -= atom.cost
        if room < 0 or atom.block.kind != "prose":
            break
        kept.insert(0, atom)
        if atom.opens:
            break
    return kept if kept and _END.search(kept[-1].text) else []


# Where a sentence ends: behind its mark and closing quotes, before white space
# and no small letter; behind a CJK mark; at a blank line or a list's next item.
_SENTENCE = re.compile(
    # Possessive, and only from a run's first mark: a megabyte of dots stays linear.
    r"(?<![.!?…])[.!?…]++[\"'”’)\]*_]*+\s++(?![a-z])|[。！？｡]++[」』”’）]*+\s*+|"
    r"\n\s*\n|\n(?=\s*(?:[-*+•>|]|\d+[.)])\s)"
)
_END = re.compile(r"[.!?…。！？｡][\"'”’)\]*_」』）]*\s*\Z")
_ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Z]|e\.g|i\.e|al|cf|vs|etc|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Fig|Figs|Eq|Sec|No|Nos|Vol|"
    r"pp|p|ca|approx|resp|Inc|Ltd|Co|Corp|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec|bzw|"
    r"z\.B|u\.a|d\.h|Nr|Bd|Hrsg))\.\s+\Z"
)
_LINE = re.compile(r"\n")
# A row of CSV may go on so far.
_HEAD_LINES = 8
_CLAUSE = re.compile(r"[,;:，、；：]\s*")
_SPACE = re.compile(r"\s+")


def sentences(text: str) -> list[str]:
    """`text` cut behind its sentences; the parts join to the text again."""
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
    return lambda text: _cut(text, (found.end() for found in pattern.finditer(text)))


_FINER: dict[Kind, tuple[Callable[[str], Iterator[str]], ...]] = {
    "prose": (_sentences, _split_at(_LINE), _split_at(_CLAUSE), _split_at(_SPACE)),
    "code": (_split_at(_LINE), _split_at(_CLAUSE), _split_at(_SPACE)),
    "table": (_split_at(_LINE), _split_at(_CLAUSE), _split_at(_SPACE)),
}


def _atoms(block: Block, limit: int, budget: _Budget) -> Iterator[_Atom]:
    """A block's sentences or lines; those over `limit` cut finer."""
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
    """A word that is over the limit by itself, in halves until they fit."""
    # As many characters as `limit` tokens may hold at most, to begin with.
    size = CHARS_PER_TOKEN * limit
    for start in range(0, len(text), size):
        part = text[start : start + size]
        cost = budget.cost(part)
        if cost <= limit or len(part) == 1:
            yield part, cost
        else:
            middle = len(part) // 2
            yield from _characters(part[:middle], limit, budget)
            yield from _characters(part[middle:], limit, budget)


def _join_tiny(pieces: Iterable[_Piece], budget: _Budget) -> Iterator[_Piece]:
    """Join what is too small to stand alone to the piece before it, where both fit."""
    last: _Piece | None = None
    for piece in pieces:
        if last and not piece.repeated and _joinable(last, piece, budget):
            last = _Piece(_shared(last, piece), last.atoms + piece.atoms, last.repeated)
        else:
            if last:
                yield last
            last = piece
    if last:
        yield last


def _joinable(left: _Piece, right: _Piece, budget: _Budget) -> bool:
    limit = budget.of(_shared(left, right))
    costs = left.cost, right.cost
    return min(costs) < _TINY * limit and sum(costs) <= limit


def _shared(left: _Piece, right: _Piece) -> str | None:
    """The section of two pieces: the deeper where one lies within the other, else what is common.

    The deeper one only if it is the larger, too: else it would claim what is not its own.
    """
    a, b = (left.section or "").split(PATH), (right.section or "").split(PATH)
    larger = a if left.cost >= right.cost else b
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    nested = same == min(len(a), len(b)) or "" in (a[0], b[0])
    return PATH.join(larger if nested else a[:same]) or None


def _fitted(piece: _Piece, budget: _Budget) -> Iterator[_Piece]:
    """The piece; halved where its tokens are more than the sum of its parts.

    For wordpiece they never are; for tokenizers that see across white space they may be.
    """
    text = piece.text.strip()
    if budget.fits(piece.section, text) or len(text) < 2:
        yield piece
    elif len(piece.atoms) > 1:
        middle = max(1, len(piece.atoms) // 2)
        for atoms, repeated in (
            (piece.atoms[:middle], min(piece.repeated, middle)),
            (piece.atoms[middle:], max(0, piece.repeated - middle)),
        ):
            if repeated < len(atoms):
                yield from _fitted(_Piece(piece.section, atoms, repeated), budget)
    else:
        atom = piece.atoms[0]
        middle = _middle(atom.text)
        for start, half in ((0, atom.text[:middle]), (middle, atom.text[middle:])):
            part = _Atom(atom.block, atom.start + start, half, 0)
            yield from _fitted(_Piece(piece.section, [part]), budget)


def _middle(text: str) -> int:
    """Behind the white space nearest to the middle, else the middle."""
    ends = [found.end() for found in _SPACE.finditer(text) if 0 < found.end() < len(text)]
    return min(ends, key=lambda end: abs(end - len(text) // 2), default=len(text) // 2)


def _chunks(pieces: Iterable[_Piece]) -> Iterator[Chunk]:
    """Chunks without the blank space at their ends, which goes into the next one's joint."""
    gap: str | None = None
    lines = _Lines()
    for piece in pieces:
        text = piece.text
        repeated = len(_text(piece.atoms[: piece.repeated])) if piece.repeated else 0
        blank = None if piece.atoms[0].block.kind == "prose" else "\n"
        start = len(text) - len(text.lstrip(blank))
        end = max(start, len(text.rstrip()))
        joint = "" if gap is None else gap + _GAP * piece.atoms[piece.repeated].opens
        if end <= max(start, repeated):  # nothing new is in it
            gap = None if gap is None else joint + text[repeated:]
            continue
        overlap = max(0, repeated - start)
        joint += text[repeated:start]
        yield Chunk(
            text=text[start:end],
            page=piece.atoms[piece.repeated].block.page,
            section=piece.section,
            overlap=overlap,
            joint=None if gap is None or (joint == _GAP and not overlap) else joint,
            marks=_marks(piece, text, start, end, lines),
        )
        gap = text[max(end, repeated) :]


class _Lines:
    """Counts the lines above a character of a block, each only once as chunks go on."""

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


def _marks(piece: _Piece, text: str, start: int, end: int, lines: _Lines) -> list[Mark]:
    """Marks that place the characters of `text` from `start` to before `end` in the source.

    A repeated head has no line: the lines of a passage are those of the rows below it.
    """
    marks: list[Mark] = []
    shown = text[start:end]
    rows_from = _end_of_head(piece)
    for at, block, within in _stretches(piece, start, end):
        line = None
        if block.line is not None and at >= rows_from:
            line = block.line + lines.above(block, within)
        mark = Mark(at - start, _page_at(block, within), block.section, line)
        if not marks or not _goes_on(marks[-1], mark, shown):
            marks.append(mark)
    plain = Mark(0, piece.atoms[piece.repeated].block.page, piece.section)
    return [] if marks == [plain] else marks


def _page_at(block: Block, within: int) -> int | None:
    turn = bisect_right(block.turns, within, key=_PLACE)
    return block.turns[turn - 1][1] if turn else block.page


def _turns_in(block: Block, start: int, end: int) -> list[int]:
    """The characters of a block from `start` to before `end` at which a page turns."""
    first, last = (bisect_left(block.turns, place, key=_PLACE) for place in (start, end))
    return [turn for turn, _ in block.turns[first:last]]


def _end_of_head(piece: _Piece) -> int:
    """The character at which the rows begin below a table's head that the piece repeats; else 0."""
    if not piece.repeated:
        return 0
    head, row = piece.atoms[piece.repeated - 1], piece.atoms[piece.repeated]
    goes_on = head.block is row.block and head.start + len(head.text) == row.start
    return 0 if goes_on else len(_text(piece.atoms[: piece.repeated]))


def _stretches(piece: _Piece, start: int, end: int) -> list[tuple[int, Block, int]]:
    """(character of the piece, block, character of the block), wherever a block begins, a
    repeated head ends or a page turns, the first at `start`."""
    found: list[tuple[int, Block, int]] = []
    at = reached = 0
    for i, atom in enumerate(piece.atoms):
        goes_on = i and not atom.opens and atom.start == reached
        reached = atom.start + len(atom.text)
        at += len(_GAP) if atom.opens and i else 0
        turns = _turns_in(atom.block, atom.start, reached)
        for within in turns if goes_on else [atom.start, *turns]:
            place = at + within - atom.start
            if place <= start:
                found = [(start, atom.block, within + start - place)]
            elif place < end:
                found.append((place, atom.block, within))
        at += len(atom.text)
    return found


def _goes_on(last: Mark, mark: Mark, text: str) -> bool:
    """Whether `last` says all that `mark` says."""
    if (last.page, last.section) != (mark.page, mark.section):
        return False
    return mark.line == last.line_at(text, mark.at)
