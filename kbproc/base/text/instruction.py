"""Finds standing instructions and preferences in what a person said, and tells what each is about.

"Always …", "from now on …", "never …", "I prefer …": what holds beyond the task at hand. A question
is none, nor is a narration ("it always fails") or what is for one task ("just this once"). The
rules would rather miss one than take a text that is none, because an agent acts on what they find.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kbproc.base.patterns import lazy
from kbproc.base.text.analysis import STOP_WORDS, is_unspaced, sentences, words

_MOST_CHARS = 300  # a longer sentence is no instruction
_MOST_MESSAGE = 6000  # a longer message is mostly pasted
_KEY_CHARS = 6

# A text without one of these holds none: most texts are read no further.
_CUE = lazy(
    r"\b(?:always|never|ever|from (?:now|here|this point)|going forward|henceforth"
    r"|in (?:the )?future"
    r"|every time|each time|when(?:ever)? (?:I|you|we)|if I|by default|as a (?:general )?rule"
    r"|prefer\w*|favou?rite|rather|instead|stop|any ?more|no longer|again|unless|without asking"
    r"|like|hate|love|dislike|can't stand|remember that|keep in mind|call me"
    r"|immer|nie|niemals|künftig|ab (?:jetzt|sofort)|von (?:nun|jetzt) an|bevorzuge|lieber"
    r"|toujours|jamais|désormais|dorénavant|à l'avenir|préfère"
    r"|siempre|nunca|a partir de ahora|de ahora en adelante|prefiero)\b"
    r"|从现在|以后|今后|总是|永远|始终|一律|从不|不要再|我喜欢|我更喜欢|我偏好|请务必",
    re.IGNORECASE,
)
# Words that confine a request to the task at hand.
_ONE_TASK = lazy(
    r"\b(?:(?:just |only )?(?:this|that|one) (?:time|once)|just (?:for )?(?:this|once)|for now"
    r"|today"
    r"|right now|tonight|tomorrow|at the moment|for the (?:moment|time being|next|following"
    r"|current)"
    r"|(?:for|in|on|to|of) (?:this|that|these|those)(?: (?:one|particular|specific|new|single))?"
    r" (?:one|task|file|pr|pull request|commit|change|question|function|method|class|test|branch"
    r"|ticket|issue|fix|step|case|line|email|mail|message|answer|reply|loop|module|table|page"
    r"|paragraph|section|query|script)"
    r"|dieses mal|diesmal|nur heute|heute|vorerst|cette fois|aujourd'hui|pour l'instant"
    r"|esta vez|por ahora|hoy)\b|这次|这一次|今天|暂时",
    re.IGNORECASE,
)
_VERBS = (
    "use|write|answer|reply|respond|add|include|run|keep(?! up| going| at| pushing)"
    "|make|give|show|format|put|prefer|avoid"
    "|stop"
    "|start|explain|provide|cite|mention|ask|check|commit|push|create|name|treat|speak|talk|assume"
    "|return|list|stick|do|don't|do not|skip|omit|leave|refer|address|summari[sz]e|translate"
    "|convert"
    "|highlight|limit|test|lint|document|comment|log|wrap|import|set|send|tell|consider|focus"
    "|follow|ensure|never|always|only|indent|bring|suggest|recommend|base|offer|begin|end|sign|spell"
    "|round|express|quote|link|verify|confirm|update|install|build|deploy|save|store|track|generate"
    "|present|break|split|group|sort|order|number|let|be|act|call|remind|draft|read|pin|squash"
    "|rebase|state|specify|define|describe|compare|account|attach|double-check"
)
_IMPERATIVE = rf"(?:{_VERBS})\b"
_LEAD = (
    r"(?:(?:please|and|also|so|ok(?:ay)?|hey|hi|thanks|great|oh|well|btw|one (?:more )?thing"
    r"|in general|generally|note|rule|reminder|important|claude|\d{1,3}[.)]|[-*•])[,:!]? )*+"
)
_REQUEST = (
    r"(?:you (?:should|must(?! feel)|can|need to|have to|are to|shall|may|will)"
    r"|(?:I(?:'d| would)? (?:want|like|need|expect|ask)) you(?: to)?"
    r"|(?:make|be) sure(?: that| to| you)*|remember(?: to)?|ensure(?: that| you)*)"
)
# After "always" and "never": no imperative follows.
_NO_VERB = (
    r"(?!(?:mind|again|seen|heard|had|been|got|knew|known|thought|ever|a|an|the|this|that|these"
    r"|happy|good|nice|great|fun|i|we|he|she|they|it|my|our|was|were|did|went|came|more|fun|true"
    r"|possible|wrong|right|there|in|on|at|one|so|too|quite|such|to|have|is|are|has|need|want|thought"
    r"|worked|liked|loved|say never|give up|forget (?:your|how)|lose|quit|saw|here|look back)\b"
    r"|(?!(?:feed|need|embed|shed|bring|ping|ring|focus|canvas)\b)\w+(?:ed|ing|[^s\W]s)\b)"
)
_HENCEFORTH = (
    r"(?:from (?:now|here|this point)(?: on| onwards?| out| forward)*|going forward|henceforth"
    r"|in (?:the )?future|for (?:all )?future (?:\w+ ?){1,3}|by default|as a (?:general )?rule"
    r"|until I (?:say|tell)[^,]{0,25}|unless I (?:say|ask|tell)[^,]{0,30})"
)
_DEMAND = (
    rf"(?:{_LEAD}(?:{_IMPERATIVE}|{_REQUEST}|no \w++"
    r"|I(?:'d| would)? (?:want|like|prefer|need|expect)\b"
    r"|(?:all|every|new) (?:\w+ ){1,4}(?:should|must|needs? to|ha(?:s|ve) to)\b))"
)
_PROPER = r"(?!(?:the|this|that|these|those|it|them|my|your|his|her|their|another|a|an)\b)"
_NOT = r"(?:don't|do not|you (?:don't|do not) (?:need|have) to|no need to)"
_DEGREE = (
    r"(?:(?:really|strongly|generally|usually|personally|much|also|always|definitely|would|do"
    r"|still|now|actually|tend to|clearly|far) )*"
)
_PATTERNS = lazy(
    "|".join(
        (
            rf"^{_LEAD}(?:{_REQUEST} )?(?:always|never|(?:don't|do not) ever)\s+{_NO_VERB}[a-z]",
            rf"^{_LEAD}{_HENCEFORTH}[, ]*+{_DEMAND}",
            rf"^{_DEMAND}.* {_HENCEFORTH}[\s.!]*$",
            rf"^{_DEMAND}.*(?:[,;] *(?:and |but )?| and | but )(?:always|never) {_NO_VERB}[a-z]",
            rf"^{_DEMAND}.*\balways[\s.!]*$",
            rf"^{_LEAD}(?:whenever|every time|each time) (?:I|you|we)\b[^,]*, *{_DEMAND}",
            rf"^{_LEAD}(?:when|if) I (?:ask|say|mention|write|request|talk|tell|send|give|paste)\b"
            rf"[^,]*, *{_DEMAND}",
            rf"^{_DEMAND}.*\b(?:whenever|every time|each time) (?:I|you|we)\b",
            rf"^{_DEMAND}.*\bwhen(?:ever)? I (?:ask|say|mention|request|talk|inquire)\b",
            rf"\bI(?:'d)? {_DEGREE}prefer (?!not to (?:say|answer|disclose))",
            r"^I always (?:want|need|expect)\b",
            r"\b(?:my|our) (?:\w+ ){0,2}(?:preference|preferred|favou?rite)\b[^?]* (?:is|are)\b",
            r"\bI(?:'d| would) rather (?:you|have|use|not|get|see|keep|avoid|work)\b",
            rf"\bI {_DEGREE}(?:like|hate|dislike|(?:don't|do not) like|can't stand)"
            r" (?:it when|when you|your answers|answers|my (?!\w+(?: \w+)? (?:so far|today)))",
            rf"^{_LEAD}use {_PROPER}[^.]*"
            r"(?:\binstead of\b|\brather than\b|,? not\b|\binstead[.!]*$)",
            rf"^{_LEAD}(?:stop|quit) \w+ing\b (?!(?:the|this|that|it|now|here)\b)",
            rf"^{_LEAD}{_NOT} \w+ {_PROPER}.*\b(?:any ?more|ever again|again)\b",
            rf"^{_LEAD}{_NOT} .*\b(?:unless I|without (?:asking|my|telling))\b",
            rf"^{_LEAD}(?:you )?no longer \w+",
            r"\b(?:remember|keep in mind) that (?:I|my|we|our)\b"
            r"(?!.*\b(?:said|told|asked|talked)\b)",
            rf"^{_LEAD}(?:call|address) me [A-Z\w]",
            r"^(?:bitte )?(?:immer|niemals|nie) |^(?:bitte )?\w+ (?:mir |bitte |sie |dabei )*"
            r"(?:immer|niemals|nie|künftig|in zukunft|ab (?:jetzt|sofort)|von (?:nun|jetzt) an) "
            r"|^(?:ab (?:jetzt|sofort)|von (?:nun|jetzt) an|künftig|in zukunft)"
            r" (?!(?:ist|sind|wird|werden|war|hat|haben|gibt|geht|läuft)\b)"
            r"|\bich (?:bevorzuge|mag lieber|habe lieber|hätte lieber)\b",
            r"^(?:désormais|dorénavant|à l'avenir|à partir de maintenant),? "
            r"(?!(?:il|elle|on|le|la)\b)"
            r"|^(?:s'il te plaît,? |merci de |veuillez )?\w+(?:ez|e|s|er)(?:-\w+)? "
            r"(?:toujours|jamais) "
            r"|^ne \w+ (?:jamais|plus) |\bje préfère\b",
            r"^(?:a partir de ahora|de ahora en adelante|en adelante),? (?!(?:el|la|los|ella)\b)"
            r"|^(?:por favor,? )?(?:siempre|nunca) (?!(?:he|ha|había|me|se|funciona|falla)\b)"
            r"|^(?:por favor,? )?\w+[aei] siempre |\bprefiero\b",
            r"^(?:请|從|从)?(?:从现在(?:开始|起)|以后|今后)[，,]?(?:请|都|要|不|用|始终|一律|回答)"
            r"|^请?(?:总是|永远|始终|一律|务必|不要再|从不)|我(?:更)?(?:喜欢|偏好)(?:你|用|使用|简)",
        )
    ),
    re.IGNORECASE,
)
# Reports of what others said, and mere thoughts: "he said that I prefer".
_REPORT = lazy(
    r"^(?:(?:he|she|they|it|the \w+|this|that|there) |I (?:always(?! (?:want|need|expect|prefer)\b)"
    r"|never|used to|thought|wonder|guess|remember when)\b|we (?:always|never)\b)"
    r"|\b(?:he|she|they) (?:said|says|told|wrote|thinks?)\b"
    r"|\b(?:why|whether) (?:I|you|we|it|they)\b.{0,200}\b(?:prefer|always|never)\b|\bused to\b",
    re.IGNORECASE,
)
_QUESTION = lazy(r"[?？][\"'”’)\]\s]*$")
_QUOTATION = lazy(r"[\"“„«「][^\"“”„«»「」]*[\"”“»」]|`[^`]*`|(?<!\w)'[^']*'(?!\w)")
_FENCE = lazy(r"^ *(?:```|~~~)")
_FOREIGN_LINE = lazy(r"^(?:>|\||\t| {4}|[+-]{1}[A-Za-z_<#]|\$ |#)")
_EDGE = " \t\r\n-*•"

# Words of instructions that hold for each answer of an agent.
_GENERAL = lazy(
    r"\b(?:answers?|repl(?:y|ies)|respon(?:d|ses?)|explanations?|speak|talk|tone|concise(?:ly)?"
    r"|brief(?:ly)?|verbose|short|bullet(?:s| points?)?|markdown|emojis?|jargon|formal(?:ly)?"
    r"|step[- ]by[- ]step|apologi[sz]e|call me|address me|metric|units?|date format|time ?zone"
    r"|plain (?:english|language)|english|german|french|spanish|chinese|italian|japanese|dutch"
    r"|indent(?:ation)?|tabs|type hints|antwort\w*|deutsch|englisch|duze|réponds|répondez|français"
    r"|respond[ea]\w*|español|ask (?:me )?before|without (?:asking|my))\b|回答|中文|英文|简洁",
    re.IGNORECASE,
)
# A condition confines it to what is asked about.
_CONDITION = lazy(
    r"(?:\b(?:when(?:ever)?|if|every time|each time|lorsqu\w*|quand|cuando)\b|, wenn)[^,;]*",
    re.IGNORECASE,
)
# Words by which a later instruction revokes an earlier one.
_REVOCATION = lazy(
    r"\b(?:instead of|rather than|no longer|stop \w+ing"
    r"|(?:don't|do not|not) \w+(?=.{0,200}any ?more)|don't (?:need|have) to \w+"
    r"|over|statt|au lieu de|en lugar de)\b([^,;.]*)",
    re.IGNORECASE,
)
# Two instructions about one of these topics exclude each other, and the later holds.
_TOPICS = lazy(
    r"\b(?:(?P<language>english|german|french|spanish|chinese|italian|japanese|dutch|deutsch"
    r"|englisch|français|anglais|español|inglés)|(?P<length>concise|brief|short|verbose|detailed"
    r"|in detail|long|longer|shorter)|(?P<indentation>tabs|spaces|indent\w*)"
    r"|(?P<name>call me|address me)|(?P<emoji>emojis?)|(?P<units>metric|imperial))\b"
    r"|(?P<idiom>中文|英文)",
    re.IGNORECASE,
)
# Texts that may be in another language or of another length than answers.
_OTHER_TEXT = lazy(
    r"\b(?:commits?|comments?|docstrings?|docs|documentation|readme|emails?|mails?|variables?"
    r"|names?|tests?|titles?|function\w*|lines?|branch\w*|reports?|messages?)\b",
    re.IGNORECASE,
)

_COMMON = """
always never ever now on going forward henceforth future every time each whenever when prefer
preferred preference rather instead please use using used make sure remember ask asked say want like
need don t d ll i'd stop no longer anymore again unless without keep provide include give show
answer reply respond add write me rule default over than thing things way one two all any only also
get got go know help tell think let work good best new first about more most other there really
immer nie niemals bitte künftig ab jetzt ich nicht und der die das ein eine mit für statt
toujours jamais désormais je ne pas les des une que pour avec
siempre nunca ahora por favor los las una que con para
"""
COMMON = frozenset(_COMMON.split()) | STOP_WORDS
# Question words, and words of what they ask for.
_ASKS_FOR = {
    "when": "date time deadline schedule timeline",
    "long": "duration time timeline estimate",
    "many": "number count statistic percentage figure",
    "much": "number amount cost budget price percentage",
    "why": "reason explanation",
    "how": "step implementation example",
    "who": "name person people",
    "where": "place location",
}
_NAME_OF_ALL = lazy(
    r"\b(?:(?:standing|my|our|the user'?s) (?:\w+ )?(?:instructions?|preferences?|rules|conventions"
    r"|wishes)|instructions? (?:and|or) preferences?)\b",
    re.IGNORECASE,
)


def asks_for_all(query: str) -> bool:
    """Returns whether a query asks for the standing instructions themselves."""
    return _NAME_OF_ALL.search(query) is not None


def standing_in(message: str) -> Iterator[tuple[int, int]]:
    """Yields start and end of each standing instruction in a message of a person."""
    if len(message) > _MOST_MESSAGE or not _CUE.search(message):
        return
    place, is_fenced = 0, False
    for line in message.splitlines(keepends=True):
        if _FENCE.match(line):
            is_fenced = not is_fenced
        elif not (is_fenced or _FOREIGN_LINE.match(line)):
            at = 0
            for part in sentences(line):
                sentence = part.strip(_EDGE)
                at = line.index(sentence, at)
                if is_standing(sentence):
                    yield place + at, place + at + len(sentence)
                at += len(sentence)
        place += len(line)


def is_standing(sentence: str) -> bool:
    """Returns whether a sentence that a person said holds beyond the task at hand."""
    if len(sentence) > _MOST_CHARS or not _CUE.search(sentence) or _QUESTION.search(sentence):
        return False
    text = _QUOTATION.sub("“…”", sentence.replace("’", "'"))
    return not (_ONE_TASK.search(text) or _REPORT.search(text)) and bool(_PATTERNS.search(text))


def is_general(sentence: str) -> bool:
    """Returns whether an instruction is about everything that an agent says or does."""
    return bool(_GENERAL.search(sentence)) and not _CONDITION.search(sentence)


def condition_of(sentence: str) -> str:
    """Returns the condition that an instruction names; "" for none."""
    match = _CONDITION.search(sentence)
    return match[0] if match else ""


def revoked_subjects(sentence: str) -> frozenset[str]:
    """Returns what is not to be done any more: that of which an instruction says so."""
    return subjects(" ".join(match[1] for match in _REVOCATION.finditer(sentence)))


def topics(sentence: str) -> frozenset[str]:
    """Returns the topics of a general instruction of which only the latest one holds."""
    if _OTHER_TEXT.search(sentence) or _CONDITION.search(sentence):
        return frozenset()
    names = {str(match.lastgroup) for match in _TOPICS.finditer(sentence)}
    return frozenset("language" if name == "idiom" else name for name in names)


def subjects(text: str) -> frozenset[str]:
    """Returns what an instruction is about: its telling words, each without its ending."""
    return frozenset(key for word in words(text) if (key := _key(word)))


def query_subjects(query: str) -> frozenset[str]:
    """Returns what instructions that bear on a query are about."""
    more = (_ASKS_FOR[word] for word in words(query) if word in _ASKS_FOR)
    return subjects(" ".join([query, *more]))


def _key(word: str) -> str:
    """Returns a word without its ending; "" for a common one and for one character.

    The catalog has no stemmer, which takes long to load.
    """
    if word in COMMON or (len(word) < 2 and not word.isdigit()):
        return ""
    if is_unspaced(word) or len(word) < 4:
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            word = word[: -len(ending)]
    return word[:_KEY_CHARS]
