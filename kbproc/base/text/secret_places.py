"""Lists the places where a secret stands: behind its name, in a header, an address, a command line
or a file of credentials.

What stands there has no shape of its own, so the place decides how much a value must look like a
secret: a password in an address may be a word, and a value behind `token:` may not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kbproc.base.text.secret_values import (
    NAMES_HASH,
    holds_login,
    is_code,
    is_dense_password,
    is_hex,
    is_mixed_password,
    is_path,
    is_random,
    is_strong,
    is_uuid,
    is_weak_password,
)

Check = Callable[[re.Match[str]], bool]


class Place(NamedTuple):
    """A place of secrets. `words`: the name of its kind for people.

    A match begins with one of the `literals`, which are compared in lower case. The pattern's group
    "secret" is what goes; `check` may refuse it.
    """

    kind: str
    words: str
    literals: tuple[str, ...]
    pattern: str
    check: Check


class Secret(NamedTuple):
    """A secret in a view, and its kind."""

    start: int
    end: int
    kind: str


# ------------------------------------------------------------------ behind its name

# Kind → its name for people, of the secrets that stand behind their names.
NAMED = {
    "aws_secret_key": "AWS secret key",
    "environment_line": "secret of an environment line",
    "password": "password",
    "named_secret": "secret behind its name",
}
# Parts of the names; a longer one is not needed where it holds a shorter one.
STEMS = ("pass", "pwd", "secret", "token", "key", "credential")

_REST = re.compile(
    r"(?P<rest>[\w.-]{0,60})"
    r"(?:(?P<flag>[ \t])|(?P<sign>[\"'`\])]{0,2}[ \t]{0,3}(?:=>|:=|={1,2}|:)[ \t]{0,3}|>"
    r"|[\"']?\s{1,3}value\s?=\s?|\s{1,20}value:[ \t]{1,3}))"
    r"(?:\"(?P<double>[^\"\n]{1,4000})\"|'(?P<single>[^'\n]{1,4000})'|`(?P<back>[^`\n]{1,4000})`"
    r"|(?P<plain>[^\s\"'`,;&|<>(){}\[\]]{6,4000}+))"
)
_NAME = re.compile(r"[\w$.-]{0,60}\Z")
_SECRET_NAME = re.compile(
    r"(?:(?:api|access|account|auth|client|encryption|functions?|master|private|secret|service"
    r"|shared|signing|subscription|license)[_.-]?key|secret(?:[_.-]?id)?|token|credentials?)\Z",
    re.I,
)
_PASSWORD_NAME = re.compile(r"(?:password|passwd|passphrase|pwd|(?<![a-z])pass|dbpass)\Z", re.I)
_AWS_NAME = re.compile(r"secret_?(?:access_?)?key\Z", re.I)
_AWS_KEY = re.compile(r"[A-Za-z0-9/+]{40}")
# Other tokens are often those of a commit, a page or a place in a list.
_OWN_TOKEN = re.compile(
    r"(?:access|auth|refresh|bot|api|session|security|deploy|identity)[_-]?token\Z", re.I
)
_CLASS = re.compile(r"Key|Token|Secret")  # parts of names of code, as in X448PrivateKey
_VALUE = re.compile(r"[A-Za-z0-9_+/=.!@#%^&*~:$-]{16,4000}")
_LINE_NAME = re.compile(
    r"[A-Z0-9_]*(?:SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|_PASS|SSHPASS|_PWD|API_?KEY|ACCESS_KEY"
    r"|PRIVATE_KEY|SECRET_KEY|AUTH_KEY|CREDENTIALS?)(?:_[A-Z0-9]{1,12})?"
)
_LINE_PASSWORD = re.compile(r"PASSWORD|PASSWD|PASSPHRASE|_PASS\b|SSHPASS|_PWD\b")
_UUID_NAME = re.compile(r"x-api-key|heroku|postmark|railway|snyk|hubspot|exa_", re.I)
_CONNECTION = re.compile(
    r"\b(?:server|data source|host|user(?: ?id)?|uid|database|initial catalog|driver|dsn)\s*=", re.I
)


class _Named(NamedTuple):
    """A value and the name that stands before it. `after`: the character behind a plain value."""

    name: str
    value: str
    sign: str
    is_quoted: bool
    after: str


def named_secrets(text: str, lower: str) -> Iterator[Secret]:
    """Yields the secrets that stand behind their names."""
    end = 0  # no name is looked for within a plain value
    for place in places(lower, STEMS):
        if place >= end and (match := _REST.match(text, place)):
            group = str(match.lastgroup)
            start, stop = match.span(group)
            end = stop if group == "plain" else end
            named = _named(match, text, place)
            if named is not None and (kind := _kind_of(named, text, place)):
                yield Secret(start, start + len(named.value), kind)


def _named(match: re.Match[str], text: str, place: int) -> _Named | None:
    """Returns the value of a match with its name; None for what is no value behind a name."""
    before = _NAME.search(text, max(0, place - 60), place)
    first = place - len(before[0]) if before else place
    name = text[first : match.end("rest")]
    sign = "flag" if match["flag"] else match["sign"].strip("\"'`)] \t\n")
    if (match["flag"] and not name.startswith("--")) or (sign == ">" and text[first - 1] != "<"):
        return None
    if name.startswith("--"):
        sign = "flag"
    elif "value" in sign:
        sign = "value:"
    group = str(match.lastgroup)
    if group != "plain":
        return _Named(name, match[group], sign, True, "")
    after = text[match.end() : match.end() + 1] or "\n"
    if after in ">({[" or (sign == ">" and after != "<"):
        return None
    return _Named(name, match[group].rstrip(".:"), sign, False, after)


def places(lower: str, literals: tuple[str, ...]) -> Iterator[int]:
    """Yields the places of all the literals, in order."""
    numbers = []
    for literal in literals:
        place = lower.find(literal)
        while place >= 0:
            numbers.append(place)
            place = lower.find(literal, place + 1)
    yield from sorted(numbers)


def _kind_of(named: _Named, text: str, place: int) -> str | None:
    """Returns the kind of secret that a value is, or None."""
    name, value = named.name.lstrip("-$"), named.value
    if NAMES_HASH.search(name) or is_path(value):
        return None
    if _LINE_NAME.fullmatch(name) and _is_strong_line(name, named):
        return "environment_line"
    if _PASSWORD_NAME.search(name):
        is_secret = _is_password(named) or _is_in_connection(named, text, place)
        return "password" if is_secret else None
    if not _SECRET_NAME.search(name):
        return None
    if _UUID_NAME.search(name) and is_uuid(value):
        return "named_secret"
    if _AWS_NAME.search(name) and _AWS_KEY.fullmatch(value) and is_strong(value):
        return "aws_secret_key"
    return "named_secret" if _is_named_secret(name, named) else None


def _is_strong_line(name: str, named: _Named) -> bool:
    """Returns True for a line of an environment file whose value is a secret.

    A password need not look random, and is one if its name says so.
    """
    value = named.value
    if named.sign not in ("=", ":", "value:") or " " in value or is_code(value):
        return False
    if not _LINE_PASSWORD.search(name):
        return len(value) >= 16 and is_strong(value, name)
    is_whole_name = "_" in name or name in ("PGPASSWORD", "SSHPASS")
    return not is_weak_password(value) and (is_whole_name or is_mixed_password(value))


def _is_password(named: _Named) -> bool:
    value = named.value
    if " " in value:
        return False
    if named.is_quoted or named.sign in ("flag", ">", "value:"):
        return is_mixed_password(value)
    if named.sign == ":" and named.after in "\r\n,}":
        return is_mixed_password(value)
    return is_dense_password(value)


def _is_named_secret(name: str, named: _Named) -> bool:
    value = named.value
    if not _VALUE.fullmatch(value) or not is_strong(value, name):
        return False
    if name.lower().endswith("token") and not _OWN_TOKEN.search(name):
        return not is_hex(value) and len(value) >= 20 and not is_code(value)
    return named.is_quoted or not (is_code(value) or _CLASS.search(value))


def _is_in_connection(named: _Named, text: str, place: int) -> bool:
    """Returns True for the password of `Server=…;User Id=…;Password=…;`, which may be a word."""
    if named.sign != "=" or is_weak_password(named.value):
        return False
    line = text[max(0, place - 300) : place].rpartition("\n")[2]
    return ";" in line and bool(_CONNECTION.search(line))


# ------------------------------------------------------------------ other places


def _place(kind: str, words: str, literals: str, pattern: str, check: Check) -> Place:
    return Place(kind, words, tuple(literals.split("|")), pattern, check)


def _has_password(match: re.Match[str]) -> bool:
    return not is_weak_password(match["secret"])


def _has_strong(match: re.Match[str]) -> bool:
    return is_strong(match["secret"])


def _has_login(match: re.Match[str]) -> bool:
    return holds_login(match["secret"])


def _has_url_password(match: re.Match[str]) -> bool:
    """Returns True for a password of an address; a port with a path behind it is none."""
    scheme = re.search(
        r"[a-z][a-z0-9+.-]{0,40}\Z", match.string[max(0, match.start() - 40) : match.start()], re.I
    )
    secret = match["secret"]
    first = secret.partition("@")[0]
    is_example = len(first) >= 4 and is_weak_password(first)
    return bool(scheme) and not (
        is_weak_password(secret) or is_example or re.match(r"\d{1,5}(?:[/?#]|\Z)", secret)
    )


_SESSION = re.compile(r"sess|sid|auth|token", re.I)


def _has_cookie(match: re.Match[str]) -> bool:
    pairs = re.findall(r"([\w.-]{1,80})=\s{0,3}([^;\s]{16,4000})", match["secret"])
    return any(
        is_strong(value.strip('"')) or (_SESSION.search(name) and is_uuid(value))
        for name, value in pairs
    )


def _is_query(match: re.Match[str]) -> bool:
    before = match.string[match.start() - 1 : match.start()]
    return before in ("?", "&", ";") and is_strong(match["secret"])


def _is_command(match: re.Match[str]) -> bool:
    before = match.string[max(0, match.start() - 1) : match.start()]
    return not (before.isalnum() or before in ("_", "-")) and _has_password(match)


def _command(programs: str, flag: str) -> Place:
    """Returns the place of a password behind a flag of a program, whose letters have their case."""
    pattern = rf"(?-i:\b)[^\n|]{{0,300}}?\s(?-i:{flag})[\"']?(?P<secret>[^\s\"'`;|]{{3,200}})"
    names = "|".join(map(re.escape, programs.split("|")))
    return _place(
        "command_password",
        "password of a command line",
        programs,
        rf"(?:{names})[\w-]{{0,20}}{pattern}",
        _is_command,
    )


_QUOTE = r"[\"'`]?"
_LOGIN = r"[\"']?[^\s:\"']{1,100}:"

PLACES: tuple[Place, ...] = (
    _place(
        "basic_login",
        "login of basic authentication",
        "authorization",
        rf"authorization{_QUOTE}\s{{0,5}}[:=,]\s{{0,5}}{_QUOTE}basic\s{{1,5}}"
        r"(?P<secret>[A-Za-z0-9+/]{8,400}={0,2})",
        _has_login,
    ),
    _place(
        "authorization",
        "authorization header",
        "authorization",
        rf"authorization{_QUOTE}\s{{0,5}}[:=,]\s{{0,5}}f?{_QUOTE}"
        r"(?:(?:bearer|token|(?:api-?)?key)\s{1,5})?"
        r"(?P<secret>[A-Za-z0-9._~+/=-]{16,4000})",
        _has_strong,
    ),
    _place(
        "cookie",
        "cookie",
        "cookie|-b ",
        r"(?:cookie|-b)[\"']?:?\s{0,3}[\"']?(?P<secret>[\w.-]{1,80}=[^\n\"']{16,4000})",
        _has_cookie,
    ),
    _place(
        "connection_string",
        "password of a connection",
        "://",
        r"://[^\s:/@\"'<>`]{0,100}:(?P<secret>(?:(?!://)[^\s\"'<>`]){1,200})@(?=[\w\[$.{-])",
        _has_url_password,
    ),
    _place(
        "query_secret",
        "secret of an address",
        "access_token=|api_key=|apikey=|auth_token=|client_secret=|x-amz-signature=|"
        "x-amz-security-token=|sig=|signature=|token=|key=",
        r"[\w-]{1,24}=(?P<secret>[A-Za-z0-9%._~+/-]{20,2000})",
        _is_query,
    ),
    _place(
        "azure_storage_key",
        "Azure storage key",
        "accountkey=",
        r"accountkey=(?P<secret>[A-Za-z0-9+/]{86}==)",
        lambda match: is_random(match["secret"]),
    ),
    _place(
        "mailgun_key",
        "Mailgun key",
        "mailgun",
        r"mailgun[\w.-]{0,30}[\"'\s:=]{1,6}(?P<secret>key-[0-9a-z]{32})(?![0-9a-z])",
        lambda match: is_random(match["secret"]),
    ),
    _place(
        "twilio_key",
        "Twilio key",
        "twilio",
        r"twilio\w{0,30}[\"'\s:=]{1,6}(?P<secret>(?:SK)?[0-9a-f]{32})(?![0-9a-f])",
        lambda match: is_random(match["secret"]),
    ),
    _command("curl", rf"(?:-u|-U|--user|--proxy-user)[ =]?{_LOGIN}"),
    _command("http |https ", rf"(?:-a|--auth)[ =]?{_LOGIN}"),
    _command("mysql|mariadb|7z", "-p"),
    _command(
        "sshpass|docker login|podman login|helm registry login|az login|oc login|mongo", "-p ?"
    ),
    _command("redis-cli", "-a ?"),
    _command("ldap", "-w ?"),
    _command("sqlcmd|zip", "-P ?"),
    _command("smbclient|rpcclient", r"-U ?[\"']?[^\s%\"']{1,100}%"),
    _command("openssl", "-pass(?:in|out)? pass:"),
    _place(
        "basic_login",
        "login of basic authentication",
        "auth",
        r"auth[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?P<secret>[A-Za-z0-9+/]{8,400}={0,2})(?![A-Za-z0-9+/=])",
        _has_login,
    ),
    _place(
        "credentials_file",
        "password of a file of credentials",
        "machine |default login",
        r"(?:machine\s{1,5}\S{1,200}|default)\s{1,20}login\s{1,5}\S{1,100}\s{1,20}"
        r"(?:account\s{1,5}\S{1,100}\s{1,20})?password\s{1,5}(?P<secret>\S{3,400})",
        _has_password,
    ),
    _place(
        "credentials_file",
        "password of a file of credentials",
        ":54|:64|:*:",
        r":(?:[56]4\d\d|\*):[^\s:]{1,100}:[^\s:]{1,100}:(?P<secret>[^\s:]{3,200})(?=\s|\Z)",
        _has_password,
    ),
)
