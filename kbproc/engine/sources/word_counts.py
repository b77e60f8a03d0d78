"""Counts a text's tokens as the sum of its words' tokens, and tokenizes each word only once.

That is right only for tokenizers that read word by word; `reads_word_by_word` tells them apart.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TokenCounter = Callable[[str], int]
"""Counts the tokens of a text as the model reads it, its special tokens included."""

# A sign of ASCII is a token of its own. Other white space does not end a word, because a control
# character that the tokenizer drops joins the characters around it.
_SIGNS = string.punctuation.encode()
_WORD = re.compile(rf"[^ \n\t{re.escape(string.punctuation)}]+")
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
            token.lstrip or token.rstrip or not token.content or set(token.content) & set(" \n\t")
            for token in tokenizer.get_added_tokens_decoder().values()
        )
    )


class WordCounts(dict[str, int]):
    """A cache of the tokens of words.

    `count`: counts a text with its special tokens. `count_plain`: counts a word of letters and
    digits of ASCII without them. `added_tokens`: what the tokenizer reads as one token, such as
    `[MASK]`.
    """

    def __init__(
        self,
        count: TokenCounter,
        count_plain: Callable[[str], int] | None = None,
        added_tokens: Sequence[str] = (),
    ) -> None:
        self._count = count
        self._special = count("")
        self._count_plain = count_plain or self._without_special
        self._added_tokens = added_tokens

    @classmethod
    def by(cls, tokenizer: Tokenizer, count: TokenCounter) -> WordCounts:
        """Returns a cache for a tokenizer that reads word by word."""
        # The model alone takes a tenth of the time of `encode`.
        model, normalizer = tokenizer.model, tokenizer.normalizer

        def count_plain(word: str) -> int:
            return len(model.tokenize(normalizer.normalize_str(word) if normalizer else word))

        tokens = tokenizer.get_added_tokens_decoder().values()
        return cls(count, count_plain, [token.content for token in tokens])

    def _without_special(self, word: str) -> int:
        return self._count(word) - self._special

    def __missing__(self, word: str) -> int:
        is_plain = word.isascii() and word.isalnum()
        tokens = self._count_plain(word) if is_plain else self._without_special(word)
        if len(word) <= _LONGEST:
            if len(self) >= _MOST_WORDS:
                self.clear()
            self[word] = tokens
        return tokens

    def of(self, text: str) -> int:
        """Returns the tokens of `text`, the special ones included."""
        if any(token in text for token in self._added_tokens):
            return self._count(text)
        data = text.encode("utf-8", "surrogatepass")
        signs = len(data) - len(data.translate(None, _SIGNS))
        return self._special + signs + sum(map(self.__getitem__, _WORD.findall(text)))
