"""Stems: the common part of a word's forms.

A word's script chooses its stemmer; irregular plurals have a table. Words in Latin letters get
English stems. For other languages in these letters the beginnings stand in for stems, because the
first letters of German, Turkish or Polish words tell most.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from kbproc.base.patterns import lazy
from kbproc.base.text.analysis import beyond_ascii, is_unspaced
from kbproc.base.text.caches import cached

# The letters of a script, and the stemmer for words that begin with one.
_BY_SCRIPT = {
    "russian": "\u0400-\u052f",
    "arabic": "\u0620-\u06ff\u0750-\u077f",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "hindi": "\u0900-\u097f",
    "tamil": "\u0b80-\u0bff",
}
_SCRIPTS = lazy("|".join(f"(?P<{name}>[{letters}])" for name, letters in _BY_SCRIPT.items()))
_HEAD = 5

# The endings of Hindi nouns and verbs, for which tantivy has no stemmer (Ramanathan and Rao,
# 2003); the longest that leaves two characters is taken off.
_HINDI_ENDINGS = """
ाएंगी ाएंगे ाऊंगी ाऊंगा
ाएगी ाएगा ाओगी ाओगे एंगी ेंगी एंगे ेंगे ूंगी ूंगा ातीं नाओं नाएं ताओं ताएं ियों ियां
ाकर ाइए ाईं ाया ेगी ेगा ोगी ोगे ाने ाना ाते ाती ाता तीं ाओं ाएं ुओं ुएं ुआं
कर ाओ िए ाई ाए ने नी ना ते ती ता ीं ां ों ें
ो े ू ु ी ि ा
"""
_HINDI = tuple(sorted(_HINDI_ENDINGS.split(), key=len, reverse=True))


# Plurals that no stemmer leads back to the singular; none is a form of a verb or another word.
# "Matrices" is not among them: where it is a subject, "matrix" is in too many texts.
_PAIRS = """
calves/calf elves/elf halves/half hooves/hoof knives/knife loaves/loaf scarves/scarf
selves/self sheaves/sheaf shelves/shelf thieves/thief wharves/wharf wives/wife wolves/wolf
housewives/housewife midwives/midwife bookshelves/bookshelf penknives/penknife
geese/goose mongeese/mongoose mice/mouse dormice/dormouse lice/louse feet/foot teeth/tooth
forefeet/forefoot men/man women/woman firemen/fireman policemen/policeman salesmen/salesman
fishermen/fisherman chairmen/chairman craftsmen/craftsman workmen/workman
children/child grandchildren/grandchild oxen/ox brethren/brother pence/penny
indices/index vertices/vertex vortices/vortex appendices/appendix
cortices/cortex codices/codex helices/helix apices/apex radices/radix
analyses/analysis crises/crisis hypotheses/hypothesis theses/thesis syntheses/synthesis
diagnoses/diagnosis prognoses/prognosis parentheses/parenthesis oases/oasis
ellipses/ellipsis metastases/metastasis neuroses/neurosis
criteria/criterion phenomena/phenomenon automata/automaton polyhedra/polyhedron
bacteria/bacterium errata/erratum strata/stratum symposia/symposium curricula/curriculum
memoranda/memorandum millennia/millennium aquaria/aquarium spectra/spectrum
fungi/fungus cacti/cactus nuclei/nucleus stimuli/stimulus radii/radius alumni/alumnus
bacilli/bacillus foci/focus loci/locus larvae/larva vertebrae/vertebra antennae/antenna
formulae/formula algae/alga nebulae/nebula mitochondria/mitochondrion genera/genus
"""
_IRREGULAR = dict(pair.split("/") for pair in _PAIRS.split())
_PLURALS: dict[str, list[str]] = {}


def stems(folded: Sequence[str]) -> list[str]:
    """Returns the stems of folded words, one for one, as the index has them."""
    return _one_for_one("english", stemmed_by_script(" ".join(folded))) if folded else []


@cached(8192)
def stem_of(word: str) -> str:
    """Returns the stem of one folded word."""
    (stem,) = stems([word])
    return stem


def plurals(stem: str) -> list[str]:
    """Returns the irregular plurals of the stem's word, which begin unlike it."""
    if not _PLURALS:
        plural, singular = list(_IRREGULAR), list(_IRREGULAR.values())
        for word, stem_of_singular in zip(plural, stems(singular), strict=True):
            _PLURALS.setdefault(stem_of_singular, []).append(word)
    return _PLURALS.get(stem, [])


def stemmed_by_script(analysed: str, words: Sequence[str] | None = None) -> str:
    """Returns an analysed text with stems for its words in other than Latin letters.

    The index itself makes English stems of the other words, where irregular plurals have become
    singular, and leaves these stems as they are. `words`: the text's, where they are known.
    """
    words = analysed.split() if words is None else words
    if not _IRREGULAR.keys().isdisjoint(words):
        words = [*map(_IRREGULAR.get, words, words)]
        analysed = " ".join(words)
    if analysed.isascii() or not _SCRIPTS.search(beyond_ascii(analysed)):
        return analysed
    return " ".join(_stemmed_by_script(words))


def _stemmed_by_script(words: Sequence[str]) -> list[str]:
    results = list(words)
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words):
        if not word.isascii() and (letter := _SCRIPTS.match(word)):
            places.setdefault(str(letter.lastgroup), []).append(place)
    for script, of_script in places.items():
        script_stems = _stems_in(script, [words[place] for place in of_script])
        for place, stem in zip(of_script, script_stems, strict=True):
            results[place] = stem
    return results


def _stems_in(script: str, words: Sequence[str]) -> list[str]:
    if script == "hindi":
        return [_without_ending(word) for word in words]
    return _one_for_one(script, " ".join(words))


def _one_for_one(language: str, analysed: str) -> list[str]:
    """Returns a stem for every word; a word that the stemmer empties is its own stem."""
    stemmer = _stemmer(language)
    results = stemmer(analysed)
    originals = analysed.split()
    if len(results) == len(originals) and all(results):
        return results
    return ["".join(stemmer(word)) or word for word in originals]


def _without_ending(word: str) -> str:
    word = word.replace("ँ", "ं")
    ending = next((e for e in _HINDI if len(word) > len(e) + 1 and word.endswith(e)), "")
    return word.removesuffix(ending)


def head(word: str) -> str:
    """Returns the beginning of a folded word; "" where its script has no spaces."""
    return heads(word)


def heads(analysed: str, stemmed: str | None = None) -> str:
    """Returns the beginnings of an analysed text's words; scripts without spaces have none.

    `stemmed`: the text with stems by script, where they are known.
    """
    if analysed.isascii():
        return " ".join([word[:_HEAD] for word in analysed.split()])
    words = (stemmed_by_script(analysed) if stemmed is None else stemmed).split()
    return " ".join([word[:_HEAD] for word in words if not is_unspaced(word)])


@functools.cache
def _stemmer(language: str) -> Callable[[str], list[str]]:
    import tantivy

    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
    return builder.filter(tantivy.Filter.stemmer(language)).build().analyze
