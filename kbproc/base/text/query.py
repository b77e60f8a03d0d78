"""Parses a query into words, phrases and exclusions; any string is a valid query."""

from __future__ import annotations

import itertools
import re
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.patterns import lazy
from kbproc.base.text.analysis import STOP_WORDS, is_unspaced, words
from kbproc.base.text.language import SMALL_WORDS, is_foreign
from kbproc.base.text.names import names, with_gershayim, with_thousands

# "it's", "we'll" and "don't" leave "it", "we" and nothing in a query.
_CONTRACTION = lazy(r"\b\w+n['’]t\b|(?<=\w)['’](?:s|d|m|ll|re|ve)\b", re.IGNORECASE)


# Weights of a word that nearly matches one that no text holds, and of two words joined.
NEARLY, JOINED = 0.8, 0.5


class Query(Struct, frozen=True, dict=True):
    """A parsed query, in folded words.

    `terms`: any of them may match, and each scores as often as it occurs; those of the phrases are
    among them. `phrases`: every one must match, word by word. `excluded`: none may match.
    `options`: those of the excluded that may be options of a command, as typed. `reason`: why
    nothing can match, else None. `all_words`: all that is not excluded, stop words too. `tells`
    False: all words are stop words. `names`: those in parts, with dots, dashes or apostrophes, and
    numbers with thousands, as one word each.

    Reading it against an index sets: `instead`: for words that no text holds, ones spelt nearly so.
    `joined`: neighbours among the words that texts write as one. `in_parts`: words and names that
    texts write in parts. `stress`: the weight of each term; if empty, all weigh the same.
    """

    terms: tuple[str, ...]
    phrases: tuple[tuple[str, ...], ...] = ()
    excluded: tuple[tuple[str, ...], ...] = ()
    reason: str | None = None
    options: tuple[str, ...] = ()
    all_words: tuple[str, ...] = ()
    tells: bool = True
    names: tuple[str, ...] = ()
    instead: tuple[tuple[str, str], ...] = ()
    joined: tuple[str, ...] = ()
    in_parts: tuple[str, ...] = ()
    stress: tuple[float, ...] = ()

    def looked_up(self) -> list[tuple[str, float, float]]:
        """Returns the words to look up, with their weight and the score that a text can reach."""
        nearly = dict(self.instead)
        stress = self.stress or (1.0,) * len(self.terms)
        weighted = [
            (nearly[word], NEARLY * weight, weight) if word in nearly else (word, weight, weight)
            for word, weight in zip(self.terms, stress, strict=True)
        ]
        return weighted + [(word, JOINED, JOINED) for word in self.joined]

    @cached_property
    def marked(self) -> tuple[str, ...]:
        """Returns the words to mark in a text."""
        nearly = dict(self.instead)
        return (*(nearly.get(word, word) for word in self.terms), *self.joined, *self.names)

    def neighbours(self) -> list[str]:
        """Returns every two adjacent words written as one, except with stop words.

        The parts of a name are left out, because the name itself is looked up.
        """
        terms, names = frozenset(self.terms), frozenset(self.names)
        return [
            first + second
            for first, second in itertools.pairwise(self.all_words)
            if first in terms and second in terms and not is_unspaced(first + second)
            if first + second not in names
        ]

    def with_words(self, option: str) -> Query:
        """Returns the query with `option`, one of `options`, as a word to look for."""
        new_words = tuple(words(option))
        return replace(
            self,
            all_words=self.all_words + new_words,
            terms=self.terms + new_words,
            excluded=tuple(one for one in self.excluded if one != new_words),
            options=tuple(one for one in self.options if one != option),
            reason=None,
        )


_QUOTES = str.maketrans("“”„‟«»＂", '"""""""')
# Dashes around words, and dashes before a quantity, leave nothing out: "-as agreed-", "-80°C",
# "-.5", "-€50", "-US$3".
_ASIDE = lazy(r'(?<!\S)-(?=\w)((?:(?!\s-\w)[^"])*?\w)-(?![^\s.,;:!?)])')
_CURRENCIES = (
    "$¢£¤¥\u058f\u060b\u09f2\u09f3\u0af1\u0bf9\u0e3f\u17db\u20a0-\u20cf\ufdfc\ufe69\uff04"
    "\uffe0\uffe1\uffe5\uffe6"
)
_QUANTITY = lazy(rf"[^\W\d_]{{0,3}}[{_CURRENCIES}]|[^\w\s]*\d")
_APART = " | "  # no name extends over it
_CLAUSE = re.compile(r'((?<!\S)-(?=[^\s-]))?(?:"([^"]*)"|([^\s"]+))')

# One or two letters, or a digit among them: `-x`, `-rf`, `-9`, `-mp4`.
_SHORT = lazy(r"[A-Za-z0-9]{1,2}|[^\W\d]*\d\w*")
_OPTION = lazy(r"[A-Za-z][A-Za-z-]*")
# Other signs of a command: long options, paths, pipes, variables, names of files.
_COMMAND = lazy(
    r"(?<!\S)(?:--?[A-Za-z0-9]{1,2}(?!\S)|--[A-Za-z]|~?/\w|~/|\.{1,2}(?:/|(?!\S))|\$\w"
    r"|[|>&]+(?!\S)|\*\.\w)"
    r"|\w(?:~\d|\.(?:tar|gz|tgz|bz2|xz|zip|jar|deb|rpm|sh|py|cc?|cpp|h|java|sql|ya?ml|json|toml"
    r"|xml|csv|txt|log|conf|cfg|ini|pem|key|crt|iso|mp[34]|png|jpe?g|pdf))(?!\w)"
)


def parse_query(text: str) -> Query:
    """Reads plain words, `"a phrase"`, `-word` and `-"a phrase"`.

    An unbalanced quote counts as a space; `--flag`, a short option such as `-x` or `-rf`, and any
    `-option` in a command are plain words, as is text between two dashes and text that begins with
    a digit or a currency. Stop words are left out unless all words are.
    """
    text = with_gershayim(text)
    if not text.isascii():
        text = text.translate(_QUOTES)
    text = with_thousands(text)
    if "-" in text:
        text = _ASIDE.sub(r" \1 ", text)
    pieces: list[str] = []
    phrases: list[tuple[str, ...]] = []
    excluded: list[tuple[str, ...]] = []
    options: list[str] = []
    in_command = "-" in text and _COMMAND.search(text)
    for minus, phrase, plain in _CLAUSE.findall(text):
        leaves_out = minus and (phrase or not (in_command or _is_no_word(plain)))
        if leaves_out and (clause_words := tuple(words(phrase or plain))):
            excluded.append(clause_words)
            options += [plain] if _OPTION.fullmatch(plain) else []
            continue
        pieces.append(phrase or plain)
        if phrase and (clause_words := tuple(words(phrase))):
            phrases.append(clause_words)
    sentence = " ".join(pieces)
    all_words = words(sentence)
    may_contract = "'" in sentence or "’" in sentence
    sought = words(_CONTRACTION.sub(" ", sentence)) if may_contract else all_words
    small = STOP_WORDS | SMALL_WORDS if is_foreign(all_words) else STOP_WORDS
    telling = [word for word in sought if word not in small]
    terms = telling or all_words
    return Query(
        tuple(terms),
        tuple(phrases),
        tuple(excluded),
        reason=_reason(terms, excluded),
        options=tuple(options),
        all_words=tuple(all_words),
        tells=bool(telling),
        names=tuple(names(_APART.join(pieces))),
    )


def _is_no_word(plain: str) -> bool:
    """Returns whether a dash before this text leaves nothing out: an option or a quantity."""
    return bool(_SHORT.fullmatch(plain) or _QUANTITY.match(plain))


def _reason(terms: list[str], excluded: list[tuple[str, ...]]) -> str | None:
    if terms:
        return None
    if excluded:
        return "The query only says what to leave out; add a word to look for."
    return "The query has no letter or digit to look for."
