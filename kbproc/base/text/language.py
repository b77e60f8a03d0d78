"""Tells whether a text is English, so that beginnings of words are indexed only where needed.

Small words reveal a language in Latin letters; other letters reveal themselves. No library is used:
those that detect languages weigh from 1 to 300 MB or take a tenth of a second to load, and are no
surer about the five words of a query, while one word in three of any sentence tells whether it is
English.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from kbproc.base.text.analysis import STOP_WORDS, is_unspaced

# Folded; English words are left out.
_FOREIGN = """
der das und ist nicht ein eine einer eines einem einen von zu mit den dem des im auf fur sich
wurde wurden werden wird sind wie wer wo wann welche welcher welches warum als auch nach bei aus
durch uber zum zur oder nur wenn aber hat haben hatte kann konnen vom beim dass unter vor seit
le la les du et est une dans pour que qui sur avec pas par au aux ce cette ces sont ont ete quel
quelle quels quelles quand comment il elle nous vous ils leur mais ou plus sans chez
el los las del y es un una por para con se su sus como cual cuando donde quien quienes fue lo mas
entre son era esta este hay cuantos cuantas pero
os da dos das em um uma com nao na nos nas ao qual quando onde quem foi mais pela pelo sao
gli di della dei delle dal che non sono nel nella chi quale piu alla anche quanti come dove
de het een en van dat met op te zijn voor niet aan er om ook bij wie waar wanneer hoe welke werd
och att det som ett av med till inte vad hur nar vem fran har og af til hvad hvem hvor ikke ved
ja ei oli mita miten kuka missa milloin ovat tai kun myos joka etta sen
i w na z jest sie nie ze jak kto kiedy gdzie przez od dla po oraz ktory ktora jaki jaka
je v ve co kdo kdy kde ktery ktera byl byla jsou pro az es hogy nem egy ki hol melyik volt mint
din pe care ce cand unde cine pentru fost sau ale lui este si
bir bu ile icin ne nasil kim nerede hangi kac olan olarak mi mu oldu daha gibi
cua va co khong duoc nguoi trong nhung mot cac voi nhu nao gi bao nhieu
yang dan dari untuk dengan pada adalah ini itu apa siapa kapan mana tidak oleh dalam
"""
SMALL_WORDS = frozenset(_FOREIGN.split()) - STOP_WORDS
_SIDES = dict.fromkeys(SMALL_WORDS, 1) | dict.fromkeys(STOP_WORDS, -1)

_LAST_LATIN = "\u024f"


def is_foreign(words: Sequence[str]) -> bool | None:
    """Returns whether folded words are in another language than English; None if unclear.

    Scripts without spaces don't count, because the words beside them may be English.
    """
    more = sum(map(_SIDES.get, words, repeat(0)))
    if not "".join(words).isascii():
        more += sum(word[0] > _LAST_LATIN and not is_unspaced(word) for word in words)
    return None if more == 0 else more > 0


def is_other_script(word: str) -> bool:
    """Returns whether a folded word begins with a letter that is not Latin."""
    return word[0] > _LAST_LATIN
