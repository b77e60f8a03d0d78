"""Tokens of a text as the sum of those of its words, each counted once.

Owns: which tokenizers read word by word, and the counts of words.
Refuses to know: chunks, what is counted for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# No other white space: a control character that the tokenizer drops joins what is around it.
_WORD = re.compile(r"[^ \n\t]+")
# Some 10 MB of words. A text that has more, such as a list of numbers, has few of them twice.
_MOST_WORDS = 1 << 16
_LONGEST = 64


def reads_word_by_word(tokenizer: Tokenizer) -> bool:
    """True if what stands beyond a space never changes how a word is read: BERT's wordpieces."""
    from tokenizers import models, normalizers, pre_tokenizers

    return (
        isinstance(tokenizer.model, models.WordPiece)
        and isinstance(tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        and isinstance(tokenizer.normalizer, normalizers.BertNormalizer | None)
        and not any(
            token.lstrip or token.rstrip or not _WORD.fullmatch(token.content)
            for token in tokenizer.get_added_tokens_decoder().values()
        )
    )


class WordCounts(dict[str, int]):
    """The tokens of words that were counted lately, by `count`, which adds its special tokens."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._special = count("")

    def __missing__(self, word: str) -> int:
        tokens = self._count(word) - self._special
        if len(word) <= _LONGEST:
            if len(self) >= _MOST_WORDS:
                self.clear()
            self[word] = tokens
        return tokens

    def of(self, text: str) -> int:
        """Tokens of `text`, the special ones included."""
        return self._special + sum(map(self.__getitem__, _WORD.findall(text)))
