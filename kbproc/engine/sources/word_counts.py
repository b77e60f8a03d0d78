"""Counts a text's tokens as the sum of its words' tokens, and tokenizes each word only once.

That is right only for tokenizers that read word by word; `reads_word_by_word` tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Other white space does not end a word, because a control character that the tokenizer drops joins
# the characters around it.
_WORD = re.compile(r"[^ \n\t]+")
# About 10 MB of words. A text with more, such as a list of numbers, repeats few of them.
_MOST_WORDS = 1 << 16
_LONGEST = 64


def reads_word_by_word(tokenizer: Tokenizer) -> bool:
    """Returns True if a word's tokens never depend on other words, as with BERT's wordpieces."""
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
    """A cache of the tokens of words; `count` counts a text with its special tokens."""

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
        """Returns the tokens of `text`, the special ones included."""
        return self._special + sum(map(self.__getitem__, _WORD.findall(text)))
