"""Says which subjects a query names, and which texts are about it.

A query names a subject if one of its names stands in it as a phrase: a title, an alias, a heading
of several words, a symbol. Spelling makes no difference that people make by habit: `Node.js`,
`nodejs` and `node js` are one name, and so are `test` and `tests`. A part of a longer name is no
name: neither `redis` in `redis-commander` nor `TanStack` in `TanStack Router`.

A text is about a word if it holds it as a word of its own: not as a part of a name ("stack" in
`TanStack`), nor in what it excludes ("rather than Vue").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kbproc.base.text.analysis import STOP_WORDS, folded, is_unspaced, words
from kbproc.base.text.caches import cached
from kbproc.base.text.stems import stems

# A word with the marks within it, and with the signs of names such as C++, C# and .NET.
_TOKEN = re.compile(r"(?:(?<![\w.])\.)?[^\W_]+(?:[-._'’][^\W_]+)*(?:\+\+|#)?")
_MARKS = re.compile(r"[-._'’]")
_POSSESSIVE = re.compile(r"['’]s$")
# `redis-backed` is about redis, `redis-commander` is not.
_KIND_OF = re.compile(r"-(?:backed|based|compatible|like|only|related|specific|style)$")
_BREAK = re.compile(r"[,;:!?()\[\]{}\"“”„«»|/=<>\n]|\.(?=\s|$)")
# A text names these words only to say that it is about others; "or" goes on with them.
_EXCLUDED = re.compile(
    r"(?i)\b(?:rather than|instead of|in place of|other than|as opposed to|unlike|no longer"
    r"|(?:and|but) not|(?<=, )not)\s+((?:[^\s,;:.!?()]|\.(?=\w))+"
    r"(?: (?!(?:and|or|nor|for|in|on|at|by|with|to|of|as|so|because|since|when|while|where|who"
    r"|which|that|is|are|was|were)\b)[^\s,;:.!?()]+){0,2}"
    r"(?:,? (?:or|nor) [^\s,;:.!?()]+)*)"
)
_MOST_TOKENS = 8
_LEAST_SLIP = 5  # letters; one more or less makes another word of a shorter one (car, cart)
_SHORT = 2
# A title ends before one of these, behind which it says more of its subject.
_SUBTITLE = re.compile(r"\s[-–—(|]|:\s")
_SYMBOL = re.compile(r"(?=.*[a-z0-9_.][A-Z]|.*[._\d])[\w.$]{3,}")
_PATH = re.compile(r"\s›\s|\s>\s")
# Whose titles say in a person's or an agent's words what they are about.
_NAMED_BY_HAND = frozenset({"knowledge", "note"})


Span = tuple[int, int]  # the first and the last word of a name in a query


class Subject(NamedTuple):
    """A title with aliases, a section and a text, which a query may name.

    `is_foreign`: somebody else named it, who must not shut out what the user has.
    """

    title: str
    aliases: Sequence[str]
    section: str | None
    text: str
    type: str
    is_foreign: bool = False


class _Token(NamedTuple):
    """A word of a query. `key`: as names are compared; `after_break`: none reaches over it."""

    raw: str
    key: str
    after_break: bool
    begins: bool
    at: int = -1

    @property
    def has_capital(self) -> bool:
        """Returns whether it looks like a name; the first word of a sentence has a capital anyway,
        so that it needs another (`TanStack`).
        """
        raw = self.raw.removeprefix(".")
        letters = raw[1:] if self.begins else raw[:1]
        return letters != letters.lower()


_END = _Token("", "", after_break=True, begins=True)


class QueryNames:
    """A query, as names stand in it. `instead`: mistyped word → a word that texts hold."""

    def __init__(self, query: str, instead: Mapping[str, str]) -> None:
        remaining = _EXCLUDED.sub(lambda match: match[0][: match.start(1) - match.start()], query)
        self._folded = folded(remaining)
        self._tokens = list(_tokens(remaining, instead))
        self._is_headline = any(map(_is_in_headline, self._tokens))
        self._spans: dict[str, list[Span]] = {}
        for start in range(len(self._tokens)):
            joined = ""
            for end in range(start, min(start + _MOST_TOKENS, len(self._tokens))):
                token = self._tokens[end]
                if end > start and token.after_break:
                    break
                joined += token.key
                self._spans.setdefault(_plain(joined), []).append((start, end))
        self._proper = frozenset(
            _stem(token.key)
            for token in self._tokens
            if not self._is_headline and token.has_capital and token.key not in STOP_WORDS
        )
        runs = [] if self._is_headline else list(self._capital_runs())
        within = {token for run in runs for token in run}
        self._words = {
            _stem(token.key)
            for token in self._tokens
            if len(token.key) > 1 and token.key not in STOP_WORDS and token not in within
        }
        pairs = zip(self._tokens, self._tokens[1:], strict=False)
        self._words |= {first.key + second.key for first, second in pairs}
        self._words |= {_stem(_joined(one.raw[1:])) for one in self._tokens if one.raw[0] == "."}
        self._runs = [{_stem(token.key) for token in run} for run in runs]

    def _capital_runs(self) -> Iterator[list[_Token]]:
        """Yields the runs of words with capitals, such as `TanStack Router`: names of one thing."""
        run: list[_Token] = []
        for token in [*self._tokens, _END]:
            if not token.has_capital or token.after_break:
                if len(run) > 1:
                    yield run
                run = []
            run += [token] if token.has_capital else []

    def named(self, names: Iterable[str]) -> dict[str, list[Span]]:
        """Returns the names that stand in the query, each with its places."""
        places: dict[str, list[Span]] = {}
        for name in names:
            key = key_of(name)
            if key and is_unspaced(name) and len(name) > 1 and folded(name) in self._folded:
                places[name] = [(0, -1)]
            elif spans := [span for span in self._spans.get(key, ()) if self._is_name(name, span)]:
                places[name] = spans
        return places

    def _is_name(self, name: str, span: tuple[int, int]) -> bool:
        """Returns whether the words of a span are this name, and no part of a longer one."""
        start, end = span
        tokens = self._tokens[start : end + 1]
        is_small = len(key_of(name)) <= _SHORT or key_of(name) in STOP_WORDS
        # "go" is mostly no language; at the beginning "Go" is not either.
        if is_small and (tokens[0].raw != name or (name[0].isupper() and tokens[0].begins)):
            return False
        if self._is_headline:
            return True
        following = self._tokens[end + 1 : end + 2]
        goes_on = following and following[0].has_capital and not following[0].after_break
        if goes_on and tokens[-1].raw[0].isupper() and following[0].key not in STOP_WORDS:
            return False
        before = self._tokens[start - 1] if start else None
        return not (
            before
            and not tokens[0].after_break
            and tokens[0].raw[0].isupper()
            and before.has_capital
            and before.key not in STOP_WORDS
        )

    def touches(self, subject: Subject) -> bool:
        """Returns False if the text holds words of the query only as parts of names, or in what it
        excludes; with a proper name in the query also if it holds no word, and only means alike,
        and of an entry if it lacks every proper name. (Of 100 questions about a product's pages 6
        would lose their answer, because a page need not name its product.)
        """
        if subject.type == "code":
            return True
        whole = "\n".join([subject.title, *subject.aliases, subject.section or "", subject.text])
        remaining = _EXCLUDED.sub(" ", whole)
        tokens = [_POSSESSIVE.sub("", token) for token in _TOKEN.findall(remaining)]
        parts = folded(" ".join(_MARKS.sub(" ", token) for token in tokens)).split()
        joined = map(_joined, filter(_MARKS.search, tokens))
        own = frozenset([*stems(parts), *joined])
        # Scripts without spaces run words together, and names of other scripts into them.
        if any(is_unspaced(one.raw) for one in self._tokens) or is_unspaced(whole):
            own |= frozenset(stems(words(remaining)))
        is_entry = subject.type in _NAMED_BY_HAND
        if is_entry and self._proper and self._proper.isdisjoint(own):
            return False
        if self._words & own or any(run <= own for run in self._runs):
            return True
        if self._proper:
            return False
        parts_of_names = (stems(folded(_MARKS.sub(" ", one.raw)).split()) for one in self._tokens)
        sought = self._words.union(*self._runs, *parts_of_names)
        return sought.isdisjoint(stems(words(whole)))


def _is_in_headline(token: _Token) -> bool:
    """Returns whether a small word has a capital, so that capitals tell no names."""
    return token.raw[0].isupper() and token.key in STOP_WORDS - {"i"} and not token.begins


def _tokens(text: str, instead: Mapping[str, str]) -> Iterable[_Token]:
    done, is_first = 0, True
    for match in _TOKEN.finditer(text):
        gap = text[done : match.start()]
        breaks = is_first or bool(_BREAK.search(gap))
        begins = is_first or bool(re.search(r"[.!?\n:]", gap))
        raw = _KIND_OF.sub("", _POSSESSIVE.sub("", match[0]))
        key = _joined(raw)
        replacement = instead.get(key, key)
        if len(key) >= _LEAST_SLIP and replacement[0] == key[0]:
            key = replacement
        if key:
            yield _Token(raw, key, breaks, begins, match.start())
        done, is_first = match.end(), False


def _joined(text: str) -> str:
    """Returns the letters and digits of a text, folded, as one word."""
    text = text.replace("++", "pp").replace("#", "sharp")
    text = f"dot{text[1:]}" if text.startswith(".") else text
    return "".join(folded(_MARKS.sub("", text)).split())


def _stem(key: str) -> str:
    return " ".join(stems([key]))


def _plain(key: str) -> str:
    """Returns the key without the ending of a plural."""
    is_plural = len(key) > 3 and key.endswith("s") and not key.endswith("ss")
    return key[:-1] if is_plural else key


@cached(8192)
def key_of(name: str) -> str:
    """Returns a name as names are compared; "" for a text without a letter or digit."""
    parts = (_joined(_POSSESSIVE.sub("", token)) for token in _TOKEN.findall(name))
    return _plain("".join(parts))


def names_of(subject: Subject) -> list[str]:
    """Returns the names of a subject.

    Titles of files and headings are often plain words, which a query holds without naming them.
    """
    titles = [subject.title, _SUBTITLE.split(subject.title, maxsplit=1)[0]]
    headings = _PATH.split(subject.section)[-1:] if subject.section else []
    if subject.type in _NAMED_BY_HAND:
        names = [*titles, *filter(_may_be_name, headings)]
    else:
        names = list(filter(_may_be_name, [*titles, *headings]))
    return list(dict.fromkeys([*filter(None, names), *subject.aliases]))


def _may_be_name(heading: str) -> bool:
    """Returns whether a heading can be a name: of several words, or no plain word ("Search")."""
    return len(_TOKEN.findall(heading)) > 1 or _SYMBOL.fullmatch(heading) is not None


def _is_by_hand(subject: Subject, names: Iterable[str]) -> bool:
    """Returns whether somebody gave the subject one of these names for others to find it."""
    if subject.is_foreign:
        return False
    return subject.type in _NAMED_BY_HAND or not set(subject.aliases).isdisjoint(names)


def about(
    query: str, subjects: Sequence[Subject], instead: Mapping[str, str]
) -> dict[int, list[str]]:
    """Returns the places of the subjects that the query is about, each with its names in the query.

    If it holds a name that somebody gave on purpose, an alias or the title of an entry or note, the
    subjects that it names shut out all others, and the first one of each name comes first. Titles
    of files and headings shut out nothing: of 100 questions about a product's pages 9 would lose
    their answer to a heading such as "Rate limits". Other subjects count if their text is about a
    word of the query. A name within a longer one that the query holds as well does not count.
    `instead`: mistyped word → a word that texts hold.
    """
    reading = QueryNames(query, instead)
    names = _outermost([reading.named(names_of(subject)) for subject in subjects])
    if not any(_is_by_hand(subjects[place], names[place]) for place in names):
        places = [n for n, one in enumerate(subjects) if n in names or reading.touches(one)]
        return {place: names.get(place, []) for place in places}
    firsts: dict[str, int] = {}
    for place, own_names in names.items():
        for name in own_names:
            firsts.setdefault(key_of(name), place)
    return {place: names[place] for place in [*firsts.values(), *names]}


def _outermost(named: Sequence[Mapping[str, Iterable[Span]]]) -> dict[int, list[str]]:
    """Returns the names of each subject that has one which stands within no longer one."""
    spans = {span for places in named for own_spans in places.values() for span in own_spans}
    inner = {
        (start, end)
        for start, end in spans
        if any(a <= start and end <= b and (a, b) != (start, end) for a, b in spans)
    }
    names = {
        place: [name for name, own_spans in places.items() if not inner.issuperset(own_spans)]
        for place, places in enumerate(named)
    }
    return {place: own_names for place, own_names in names.items() if own_names}
