"""What a query asks for: its words, its phrases, and what it leaves out.

Owns: the query's small syntax, which no string breaks, and the words that count.
Refuses to know: indexes, scores, and which words and phrases any text holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kbproc.text.analysis import STOP_WORDS, words

# Of "it's", "we'll" and "don't" a query keeps "it", "we" and nothing.
_CONTRACTION = re.compile(r"\b\w+n['’]t\b|(?<=\w)['’](?:s|d|m|ll|re|ve)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Query:
    """What a query asks for, in folded words.

    `terms`: any of them may match, and each scores as often as it is said; those of
    the phrases are among them. `phrases`: every one must match, word by word.
    `excluded`: none may match. `options`: those of the excluded that may be options of a
    command, as they were typed. `reason`: why nothing can match, else None.
    """

    terms: tuple[str, ...]
    phrases: tuple[tuple[str, ...], ...] = ()
    excluded: tuple[tuple[str, ...], ...] = ()
    reason: str | None = None
    options: tuple[str, ...] = ()

    def with_words(self, option: str) -> Query:
        """The query in which `option`, one of `options`, is a word to look for."""
        found = tuple(words(option))
        return replace(
            self,
            terms=self.terms + found,
            excluded=tuple(one for one in self.excluded if one != found),
            options=tuple(one for one in self.options if one != option),
            reason=None,
        )


_QUOTES = str.maketrans("“”„‟«»＂", '"""""""')
_CLAUSE = re.compile(r'((?<!\S)-(?=[^\s-]))?(?:"([^"]*)"|([^\s"]+))')

# One or two letters, or a digit among them: `-x`, `-rf`, `-9`, `-mp4`.
_SHORT = re.compile(r"[A-Za-z0-9]{1,2}|\w*\d\w*")
_OPTION = re.compile(r"[A-Za-z][A-Za-z-]*")
# What else only a command has: other options, paths, pipes, variables, names of files.
_COMMAND = re.compile(
    r"(?<!\S)(?:--?[A-Za-z0-9]{1,2}(?!\S)|--[A-Za-z]|~?/\w|~/|\.{1,2}(?:/|(?!\S))|\$\w"
    r"|[|>&]+(?!\S)|\*\.\w)"
    r"|\w(?:~\d|\.(?:tar|gz|tgz|bz2|xz|zip|jar|deb|rpm|sh|py|cc?|cpp|h|java|sql|ya?ml|json|toml"
    r"|xml|csv|txt|log|conf|cfg|ini|pem|key|crt|iso|mp[34]|png|jpe?g|pdf))(?!\w)"
)


def parse_query(text: str) -> Query:
    """Reads plain words, `"a phrase"`, `-word` and `-"a phrase"`; every string is a query.

    An unbalanced quote counts as a space; `--flag`, a short option such as `-x` or `-rf`, and
    any `-option` in a command are plain words. Stop words are left out unless nothing else
    remains.
    """
    text = text.translate(_QUOTES)
    said: list[str] = []
    sought: list[str] = []
    phrases: list[tuple[str, ...]] = []
    excluded: list[tuple[str, ...]] = []
    options: list[str] = []
    in_command = _COMMAND.search(text)
    for minus, phrase, plain in _CLAUSE.findall(text):
        found = tuple(words(phrase or plain))
        if minus and found and (phrase or not (in_command or _SHORT.fullmatch(plain))):
            excluded.append(found)
            options += [plain] if _OPTION.fullmatch(plain) else []
            continue
        said += found
        sought += words(_CONTRACTION.sub(" ", phrase or plain))
        if phrase and found:
            phrases.append(found)
    terms = [word for word in sought if word not in STOP_WORDS] or said
    reason = _reason(terms, excluded)
    return Query(tuple(terms), tuple(phrases), tuple(excluded), reason, tuple(options))


def _reason(terms: list[str], excluded: list[tuple[str, ...]]) -> str | None:
    if terms:
        return None
    if excluded:
        return "The query only says what to leave out; add a word to look for."
    return "The query has no letter or digit to look for."
