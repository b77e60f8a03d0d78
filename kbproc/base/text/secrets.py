"""Finds secrets in a text by their exact shapes, and puts the name of the kind in their place.

Precision comes first: a shape is a prefix with a fixed alphabet and length, a structure that can be
decoded, or a value of high entropy behind a telling name. A hash, a UUID or a placeholder is none.
Nothing of a secret stays, and no hash of it, because a short secret could be guessed from its hash.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

PRIVATE = "private_passages"
REDACTED = "redacted_"  # before the kind of a secret, in counts

Check = Callable[[re.Match[str]], bool]


class Shape(NamedTuple):
    """A kind of secret. `words`: its name for people. `literals`: one of them is in every match.

    The pattern is compiled when a literal is there. Its group "secret" is what goes, or
    else the whole match. `check` may refuse a match. `folds`: the literals are compared in lower
    case.
    """

    kind: str
    words: str
    literals: tuple[str, ...]
    pattern: str
    check: Check
    folds: bool = False
    flags: int = 0


class Redaction(NamedTuple):
    """A text without its secrets and private passages, and how many of each kind there were."""

    text: str
    counts: dict[str, int]


def redact(text: str) -> Redaction:
    """Returns the text with "[redacted: KIND]" for each secret and "[private]" for passages
    between <private> and </private>.

    The keys of the counts are PRIVATE, and REDACTED with the kind.
    """
    counts: Counter[str] = Counter()
    if "<" in text and "</" in text:
        text, passages = _PRIVATE_PASSAGE.subn("[private]", text)
        counts[PRIVATE] += passages
    numbers = _shapes_in(text)
    while numbers:
        number = numbers.pop(0)
        shape = SHAPES[number]
        text, count = _without(shape, text)
        if count:
            counts[REDACTED + shape.kind] += count
            numbers = [each for each in _shapes_in(text) if each > number]
    return Redaction(text, {kind: count for kind, count in counts.items() if count})


def _shapes_in(text: str) -> list[int]:
    """Returns the places in SHAPES of those with a literal in the text, in order.

    Most texts hold few literals, and a look for each of them is what a text without secrets costs.
    """
    exact, folding = _by_literal()
    folded = text.lower()
    places = [exact[literal] for literal in exact if literal in text]
    places += [folding[literal] for literal in folding if literal in folded]
    return sorted({number for numbers in places for number in numbers})


@cache
def _by_literal() -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Returns literal → places in SHAPES: the literals that are compared exactly, and in lower
    case.
    """
    exact: dict[str, list[int]] = {}
    folding: dict[str, list[int]] = {}
    for number, shape in enumerate(SHAPES):
        for literal in shape.literals:
            (folding if shape.folds else exact).setdefault(literal, []).append(number)
    return exact, folding


def secret_kinds(text: str) -> dict[str, int]:
    """Returns the number of secrets in a text by kind; see `redact`."""
    return {kind: count for kind, count in redact(text).counts.items() if kind != PRIVATE}


def _without(shape: Shape, text: str) -> tuple[str, int]:
    count = 0
    pattern = re.compile(shape.pattern, shape.flags)
    group = "secret" if "secret" in pattern.groupindex else 0

    def replacement(match: re.Match[str]) -> str:
        nonlocal count
        if not shape.check(match):
            return match[0]
        count += 1
        start, end = match.start(), match.end()
        return (
            text[start : match.start(group)]
            + f"[redacted: {shape.words}]"
            + text[match.end(group) : end]
        )

    return pattern.sub(replacement, text), count


# ------------------------------------------------------------------------- checks


def entropy(text: str) -> float:
    """Returns the entropy of a text's characters in bits for each character."""
    size = len(text)
    return -sum(n / size * math.log2(n / size) for n in Counter(text).values()) if size else 0.0


_PLACEHOLDER = re.compile(
    r"example|sample|placeholder|changeme|change[_-]me|dummy|redacted|replace|insert|your|\bmy[_-]"
    r"|xxxx|\.\.\.|\*\*\*|0000000|1111111|1234567|abcdef|fake|foobar|todo|<|>|\$\{|\{\{|%\(",
    re.I,
)


def _is_placeholder(text: str) -> bool:
    return bool(_PLACEHOLDER.search(text)) or len(set(text)) < min(8, len(text) // 2 + 1)


def _secret_of(match: re.Match[str]) -> str:
    return str(match["secret"]) if "secret" in match.re.groupindex else str(match[0])


def _is_random(match: re.Match[str]) -> bool:
    """Returns True for a token of a known prefix that is no placeholder."""
    return not _is_placeholder(_secret_of(match))


def _always(match: re.Match[str]) -> bool:
    return True


_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def base62_checksum(text: str) -> str:
    """Returns the CRC-32 of a text as six digits of base 62, as tokens of GitHub and npm end."""
    value, digits = zlib.crc32(text.encode()), ""
    for _ in range(6):
        value, digit = divmod(value, 62)
        digits = _BASE62[digit] + digits
    return digits


def _has_checksum(match: re.Match[str]) -> bool:
    """Returns True if the token's last six digits are its checksum, or if it looks random.

    A token without a right checksum may be of a newer form, so it is left only if it is plainly
    a placeholder.
    """
    body = str(match["body"])
    return base62_checksum(body[:-6]) == body[-6:] or _is_random(match)


def _has_hex_checksum(match: re.Match[str]) -> bool:
    """Returns True if the token ends with the CRC-32 of what is before it."""
    return f"{zlib.crc32(match['body'].encode()):08x}" == match["crc"].lower() or _is_random(match)


def _is_jwt(match: re.Match[str]) -> bool:
    """Returns True if the first part decodes to a header that names an algorithm."""
    try:
        header = json.loads(_decoded(match["header"]))
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and "alg" in header


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _names_discord_user(match: re.Match[str]) -> bool:
    """Returns True if the first part decodes to the digits of a user's id."""
    try:
        return _decoded(match["user"]).isdigit()
    except (ValueError, binascii.Error):
        return False


def _holds_login(match: re.Match[str]) -> bool:
    """Returns True if a value of basic authentication decodes to "user:password"."""
    try:
        login = _decoded(match["secret"].rstrip("=")).decode()
    except (ValueError, UnicodeDecodeError):
        return False
    user, colon, password = login.partition(":")
    return bool(user and colon) and login.isprintable() and not _is_weak_password(password)


# Passwords that examples and tests use; a person who has such a one loses nothing by them.
_WEAK_WORDS = """password passwd pass pwd secret test tests testing postgres mysql root admin user
guest username example changeme mypassword mysecretpassword password123 hunter2 foo bar baz qux dev
devpass local token apikey none null true false"""
_WEAK = frozenset(_WEAK_WORDS.split())


def _is_weak_password(password: str) -> bool:
    return (
        len(password) < 6
        or password.lower() in _WEAK
        or bool(re.fullmatch(r"[$%{<\[(].*|.*[}>]|[*x.•]+", password, re.I))
        or _is_placeholder_word(password)
    )


def _is_placeholder_word(password: str) -> bool:
    return bool(_PLACEHOLDER.search(password)) or len(set(password)) < 4


def _has_password(match: re.Match[str]) -> bool:
    return not _is_weak_password(match["secret"])


_HEX = re.compile(r"[0-9a-fA-F]+")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.I)
_WORDS = re.compile(r"[a-z]+(?:[_.\-/:][a-z0-9]+)*|[A-Z_]+|[A-Z]?[a-z]+(?:[A-Z][a-z]+)+")


def _is_strong(value: str, name: str) -> bool:
    """Returns True for a value of high entropy: letters and digits, no words, no UUID.

    A value of hex digits only may be a hash, so its name must not be that of one.
    """
    if _is_placeholder(value) or _UUID.fullmatch(value) or _WORDS.fullmatch(value):
        return False
    has_digit, has_letter = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    if not (has_digit and has_letter):
        return False
    if _HEX.fullmatch(value):
        return len(value) >= 32 and entropy(value) >= 3 and not _NAMES_HASH.search(name)
    return entropy(value) >= min(3.5, math.log2(len(value)) - 0.6)


def _is_strong_value(match: re.Match[str]) -> bool:
    return _is_strong(str(match["secret"]), "")


def _name_before(match: re.Match[str]) -> str:
    """Returns the name that stands directly before a match, at most 60 characters of it."""
    start = match.start()
    name = _NAME.search(match.string, max(0, start - 60), start)
    return name[1] if name else ""


def _is_named_secret(match: re.Match[str]) -> bool:
    name = _name_before(match)
    if not _NAMES_SECRET.search(name) or _NAMES_HASH.search(name):
        return False
    return _is_strong(match["secret"], name)


def _is_aws_secret(match: re.Match[str]) -> bool:
    return bool(_NAMES_AWS.search(_name_before(match))) and _is_strong(match["secret"], "")


_NAME = re.compile(r"([\w-]+)(?:\\?[\"'`])?[ \t]{0,3}:?\Z")
_NAMES_AWS = re.compile(r"secret_?(?:access_?)?key\Z", re.I)
_NAMES_SECRET = re.compile(
    r"(?:api[_-]?key|secret(?:[_-]?key)?|(?:access|auth|refresh|bot|api)[_-]?token|password|passwd"
    r"|private[_-]?key)\Z",
    re.I,
)
_NAMES_LINE = re.compile(
    r"[A-Z0-9_]*(?:SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|_PWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY"
    r"|AUTH_KEY|CREDENTIALS?)(?:_[A-Z0-9]{1,12})?"
)
_NAMES_HASH = re.compile(r"hash|digest|sha|md5|sum|etag|csrf|xsrf|nonce|page|public|next", re.I)


def _is_strong_line(match: re.Match[str]) -> bool:
    """Returns True for a line of an environment file whose value is a secret.

    A password need not look random, and is one if its name says so.
    """
    name, value = _name_before(match), match["secret"]
    if not _NAMES_LINE.fullmatch(name) or _NAMES_HASH.search(name) or _is_path(value):
        return False
    if re.search(r"PASSWORD|PASSWD|PASSPHRASE|_PWD\b", name):
        return not _is_weak_password(value)
    return len(value) >= 16 and _is_strong(value, name)


def _is_path(value: str) -> bool:
    return value.startswith(("/", "./", "~/", "$", "http://", "https://", "file:"))


# -------------------------------------------------------------------------- shapes


def _token(kind: str, words: str, literals: str, pattern: str, check: Check = _is_random) -> Shape:
    """Returns the shape of a token that stands for itself, between two characters of no token."""
    bounded = rf"(?<![A-Za-z0-9_-])(?:{pattern})(?![A-Za-z0-9_-])"
    return Shape(kind, words, tuple(literals.split()), bounded, check)


def _named(kind: str, words: str, literals: str, pattern: str, check: Check) -> Shape:
    return Shape(kind, words, tuple(literals.split()), pattern, check, True, re.I)


_PRIVATE_PASSAGE = re.compile(r"<private>.*?</private>", re.I | re.S)
_QUOTE = r"(?:\\?[\"'`])?"
_SCHEMES = (
    "postgres|postgresql|mysql|mariadb|mongodb|mongodb\\+srv|redis|rediss|amqp|amqps|mssql|"
    "sqlserver|clickhouse|cockroachdb|couchdb|ldap|ldaps|smtp|smtps|imap|imaps|ftp|sftp|ftps|"
    "https?|ssh|git|nats|kafka|neo4j|bolt|oracle|db2|snowflake|jdbc:[a-z]+"
)

SHAPES: tuple[Shape, ...] = (
    Shape(
        "private_key",
        "private key",
        ("PRIVATE KEY",),
        r"-----BEGIN (?P<type>[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)-----"
        r"(?P<secret>(?:\\[nr]|-(?!----)|[\sA-Za-z0-9+/=:,.()]){64,}?)-----END (?P=type)-----",
        _always,
    ),
    _token("aws_access_key", "AWS access key", "AKIA ASIA", r"A(?:KI|SI)A[A-Z2-7]{16}"),
    Shape(
        "aws_secret_key",
        "AWS secret key",
        ("secret",),
        rf"[:=]>?[ \t]{{0,3}}{_QUOTE}(?P<secret>[A-Za-z0-9/+]{{40}})"
        r"(?![A-Za-z0-9/+=])",
        _is_aws_secret,
        True,
    ),
    _token(
        "github_token",
        "GitHub token",
        "ghp_ gho_ ghu_ ghs_ ghr_",
        r"gh[pousr]_(?P<body>[A-Za-z0-9]{36})",
        _has_checksum,
    ),
    _token(
        "github_pat",
        "GitHub fine-grained token",
        "github_pat_",
        r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}",
    ),
    _token(
        "gitlab_token",
        "GitLab token",
        "glpat- gldt- glrt- glft- glptt- glcbt- glsoat- glimt- glagent-",
        r"gl(?:pat|dt|rt|ft|ptt|cbt|soat|imt|agent)-[A-Za-z0-9_-]{20,300}"
        r"(?:\.[a-z0-9]{2}\.[a-z0-9]{9})?",
    ),
    _token(
        "anthropic_key",
        "Anthropic key",
        "sk-ant-",
        r"sk-ant-(?:api|admin|oat|ort|sid)\d\d-[A-Za-z0-9_-]{80,120}",
    ),
    _token(
        "openai_key",
        "OpenAI key",
        "T3BlbkFJ",
        r"sk-(?:(?:proj|svcacct|admin|None)-)?[A-Za-z0-9_-]{20,120}T3BlbkFJ[A-Za-z0-9_-]{20,120}",
    ),
    _token("openrouter_key", "OpenRouter key", "sk-or-v1-", r"sk-or-v1-[0-9a-f]{64}"),
    _token("groq_key", "Groq key", "gsk_", r"gsk_[A-Za-z0-9]{52}"),
    _token("xai_key", "xAI key", "xai-", r"xai-[A-Za-z0-9]{80}"),
    _token("replicate_token", "Replicate token", "r8_", r"r8_[A-Za-z0-9]{37}"),
    _token("huggingface_token", "Hugging Face token", "hf_", r"hf_[A-Za-z]{34}"),
    _token("google_api_key", "Google API key", "AIza", r"AIza[A-Za-z0-9_-]{35}"),
    _token("google_oauth_secret", "Google OAuth secret", "GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{28}"),
    _token("google_oauth_token", "Google OAuth token", "ya29.", r"ya29\.[A-Za-z0-9_-]{30,2000}"),
    _token(
        "azure_storage_key",
        "Azure storage key",
        "AccountKey=",
        r"AccountKey=(?P<secret>[A-Za-z0-9+/]{86}==)",
    ),
    _token(
        "slack_token",
        "Slack token",
        "xoxb- xoxp- xoxa- xoxo- xoxs- xoxr- xoxe xapp-",
        r"xox[abposr]-\d{8,14}-[A-Za-z0-9-]{20,200}|xoxe(?:\.xox[bp])?-\d-[A-Za-z0-9]{100,250}"
        r"|xapp-\d-[A-Z0-9]{8,14}-\d{10,14}-[a-f0-9]{64}",
    ),
    _token(
        "slack_webhook",
        "Slack webhook",
        "hooks.slack.com/",
        r"https://hooks\.slack\.com/(?P<secret>(?:services|workflows|triggers)"
        r"/[TE][A-Z0-9]{7,12}/[AB]?[A-Z0-9]{7,20}/[A-Za-z0-9]{20,40})",
    ),
    _token(
        "discord_webhook",
        "Discord webhook",
        "/api/webhooks/",
        r"https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/(?P<secret>\d{17,20}/[\w-]{60,80})",
    ),
    _token(
        "discord_token",
        "Discord bot token",
        ".",
        r"(?P<user>[MNO][A-Za-z0-9]{22,27})\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}",
        _names_discord_user,
    ),
    _token("telegram_token", "Telegram bot token", ":AA", r"\d{8,10}:AA[A-Za-z0-9_-]{33}"),
    _token(
        "stripe_key",
        "Stripe key",
        "sk_live_ rk_live_ sk_test_ rk_test_",
        r"[rs]k_(?:live|test)_[A-Za-z0-9]{24,110}",
    ),
    _token("stripe_webhook", "Stripe webhook secret", "whsec_", r"whsec_[A-Za-z0-9+/]{32,64}=*"),
    _token("sendgrid_key", "SendGrid key", "SG.", r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    _token("mailchimp_key", "Mailchimp key", "-us", r"[0-9a-f]{32}-us\d{1,2}"),
    _named(
        "mailgun_key",
        "Mailgun key",
        "mailgun",
        r"mailgun[\w.-]{0,30}[\"'\s:=]{1,6}(?P<secret>key-[0-9a-z]{32})(?![0-9a-z])",
        _is_random,
    ),
    _named(
        "twilio_key",
        "Twilio key",
        "twilio",
        r"twilio\w{0,30}[\"'\s:=]{1,6}(?P<secret>(?:SK)?[0-9a-f]{32})(?![0-9a-f])",
        _is_random,
    ),
    _token("npm_token", "npm token", "npm_", r"npm_(?P<body>[A-Za-z0-9]{36})", _has_checksum),
    _token(
        "pypi_token",
        "PyPI token",
        "pypi-AgE",
        r"pypi-AgE(?:IcHlwaS5vcmc|NdGVzdC5weXBp)[\w-]{50,250}",
    ),
    _token("rubygems_key", "RubyGems key", "rubygems_", r"rubygems_[a-f0-9]{48}"),
    _token(
        "digitalocean_token",
        "DigitalOcean token",
        "dop_v1_ doo_v1_ dor_v1_",
        r"do[opr]_v1_[a-f0-9]{64}",
    ),
    _token(
        "shopify_token",
        "Shopify token",
        "shpat_ shpca_ shppa_ shpss_",
        r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",
    ),
    _token("square_token", "Square token", "sq0", r"sq0(?:atp-[\w-]{22}|csp-[\w-]{43})"),
    _token("databricks_token", "Databricks token", "dapi", r"dapi[a-f0-9]{32}(?:-\d)?"),
    _token("vault_token", "Vault token", "hvs. hvb.", r"hv[sb]\.[A-Za-z0-9_-]{24,300}"),
    _token(
        "terraform_token",
        "Terraform token",
        ".atlasv1.",
        r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,70}",
    ),
    _token("atlassian_token", "Atlassian token", "ATATT3", r"ATATT3[\w=-]{180,220}"),
    _token("linear_key", "Linear key", "lin_api_", r"lin_api_[A-Za-z0-9]{40}"),
    _token("notion_token", "Notion token", "ntn_ secret_", r"ntn_\w{46}|secret_[A-Za-z0-9]{43}"),
    _token("postman_key", "Postman key", "PMAK-", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    _token(
        "grafana_token",
        "Grafana token",
        "glsa_",
        r"(?P<body>glsa_[A-Za-z0-9]{32})_(?P<crc>[A-Fa-f0-9]{8})",
        _has_hex_checksum,
    ),
    _token("newrelic_key", "New Relic key", "NRAK-", r"NRAK-[A-Z0-9]{27}"),
    _token("supabase_token", "Supabase token", "sbp_", r"sbp_[a-f0-9]{40}"),
    _token(
        "planetscale_token",
        "PlanetScale token",
        "pscale_",
        r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{32,64}",
    ),
    _token(
        "age_key",
        "age secret key",
        "AGE-SECRET-KEY-1",
        r"AGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}",
    ),
    _token(
        "jwt",
        "JSON web token",
        "eyJ",
        r"(?P<header>eyJ[A-Za-z0-9_-]{10,2000})\.eyJ[A-Za-z0-9_-]{10,8000}"
        r"\.[A-Za-z0-9_-]{20,2000}",
        _is_jwt,
    ),
    _named(
        "authorization",
        "authorization header",
        "authorization",
        rf"authorization{_QUOTE}\s*[:=]\s*{_QUOTE}(?:bearer|token)\s+"
        r"(?P<secret>(?P<name>)[A-Za-z0-9._~+/=-]{16,4000})",
        _is_strong_value,
    ),
    _named(
        "basic_login",
        "login of basic authentication",
        "authorization",
        rf"authorization{_QUOTE}\s*[:=]\s*{_QUOTE}basic\s+(?P<secret>[A-Za-z0-9+/]{{8,400}}=*)",
        _holds_login,
    ),
    _named(
        "connection_string",
        "password of a connection",
        "://",
        rf"(?<![a-z0-9+])(?:{_SCHEMES})://[^\s:/@\"'<>]{{0,100}}:(?P<secret>[^\s/@\"'<>]{{1,200}})"
        r"@(?=[\w\[$.{-])",
        _has_password,
    ),
    # The next two begin with the sign between name and value, because a search for names takes ten
    # times as long; `_name_before` reads the name.
    Shape(
        "environment_line",
        "secret of an environment line",
        ("SECRET", "TOKEN", "PASS", "_PWD", "KEY", "CREDENTIAL"),
        r"=[ \t]{0,3}(?:\\?[\"'])?(?P<secret>[^\s\"'\\;&|]{8,400})",
        _is_strong_line,
    ),
    Shape(
        "named_secret",
        "secret behind its name",
        ("key", "secret", "token", "passw"),
        r"[:=]>?[ \t]{0,3}\\?[\"'`]"
        r"(?P<secret>[A-Za-z0-9_+/=.!@#%^&*~-]{16,300})\\?[\"'`]",
        _is_named_secret,
        True,
    ),
    _named(
        "query_secret",
        "secret of an address",
        "key= token= secret= signature= sig=",
        r"[?&](?P<name>access_token|api_?key|auth_token|client_secret|x-amz-signature|sig"
        r"|signature|token)=(?P<secret>[A-Za-z0-9%._~+/-]{20,2000})",
        _is_strong_value,
    ),
)

# Key of a count → its words in the singular and in the plural.
WORDS: dict[str, tuple[str, str]] = {
    PRIVATE: ("private passage", "private passages"),
    **{
        REDACTED + shape.kind: (f"redacted {shape.words}", f"redacted {_plural}")
        for shape in SHAPES
        for _plural in [
            f"{shape.words[:-1]}ies"
            if shape.words.endswith("ry")
            else f"{shape.words}s"
            if " of " not in shape.words and " behind " not in shape.words
            else re.sub(r"^(\w+)", r"\1s", shape.words)
        ]
    },
}


def redactions(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns those of the counts that are of secrets and private passages."""
    return {kind: count for kind, count in counts.items() if kind in WORDS}
