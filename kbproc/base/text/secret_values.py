"""Tells values that are secrets from hashes, ids, words, and placeholders of documentation."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import zlib
from collections import Counter

_PLACEHOLDER = re.compile(
    r"example|sample|placeholder|changeme|change[_-]me|dummy|redacted|replace|insert|your|\bmy[_-]"
    r"|xxxx|\.\.\.|\*\*\*|0000000|1111111|1234567|abcdef|fake|foobar|todo|<|>|\$\{|\{\{|%\(",
    re.I,
)
_HEX = re.compile(r"[0-9a-fA-F]+")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.I)
_WORDS = re.compile(r"[a-z]+(?:[_.\-/:][a-z0-9]+)*|[A-Z_]+|[A-Z]?[a-z]+(?:[A-Z][a-z]+)+")
# Passwords that examples and tests use; a person who has such a one loses nothing by them.
_WEAK_WORDS = """password passwd pass pwd secret test tests testing postgres mysql root admin user
guest username example changeme mypassword mysecretpassword password123 hunter2 foo bar baz qux dev
devpass local token apikey none null true false string optional required"""
_WEAK = frozenset(_WEAK_WORDS.split())
_TEMPLATE = re.compile(r"[$%{<\[(].*|.*[}>]|[*x.•]+", re.I)
# Names of code: `settings.password_2`, `get_password(1)`, `args[0]`, `$1`.
_CODE = re.compile(r"[A-Za-z_$]\w*(?:(?:\.|->|::)\w+)+|.*[(\[{].*|[$%&@]\w+", re.S)
_NAME = re.compile(r"[a-z_-]++\d{0,3}", re.I)
_OF_SECRETS = re.compile(r"pass|pwd|secret|token|key|hash", re.I)
NAMES_HASH = re.compile(
    r"hash|digest|sha(?!red)|md5|sum|etag|csrf|xsrf|nonce|page|public|next", re.I
)
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def entropy(text: str) -> float:
    """Returns the entropy of a text's characters in bits for each character."""
    size = len(text)
    return -sum(n / size * math.log2(n / size) for n in Counter(text).values()) if size else 0.0


def is_placeholder(text: str) -> bool:
    """Returns True for what stands in documentation in place of a token."""
    return bool(_PLACEHOLDER.search(text)) or len(set(text)) < min(8, len(text) // 2 + 1)


def is_random(value: str) -> bool:
    """Returns True for a token of a known prefix that is no placeholder."""
    return not is_placeholder(value)


def is_uuid(value: str) -> bool:
    return bool(_UUID.fullmatch(value)) and not is_placeholder(value)


def is_path(value: str) -> bool:
    return value.startswith(("/", "./", "../", "~/", "$", "http://", "https://", "file:"))


def is_strong(value: str, name: str = "") -> bool:
    """Returns True for a value of high entropy: letters and digits, no words, no UUID.

    A value of hex digits only may be a hash, so its name must not be that of one.
    """
    if is_placeholder(value) or _UUID.fullmatch(value) or _WORDS.fullmatch(value):
        return False
    has_digit, has_letter = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    if not (has_digit and has_letter):
        return False
    if _HEX.fullmatch(value):
        return len(value) >= 32 and entropy(value) >= 3 and not NAMES_HASH.search(name)
    return entropy(value) >= min(3.5, math.log2(len(value)) - 0.6)


def is_hex(value: str) -> bool:
    return bool(_HEX.fullmatch(value))


def is_code(value: str) -> bool:
    """Returns True for an expression of a program, which names a secret and is none."""
    return bool(_CODE.fullmatch(value))


def is_weak_password(password: str) -> bool:
    """Returns True for a password that is too short to be one, an example's, or a placeholder."""
    return (
        len(password) < 6
        or password.lower() in _WEAK
        or bool(_TEMPLATE.fullmatch(password))
        or bool(_PLACEHOLDER.search(password))
        or len(set(password)) < 4
    )


def is_mixed_password(password: str) -> bool:
    """Returns True for a password of more than words, which no name, path or expression is."""
    return (
        not is_weak_password(password)
        and not is_path(password)
        and not is_code(password)
        and not (_NAME.fullmatch(password) and _OF_SECRETS.search(password))
        and not _UUID.fullmatch(password)
        and not (_HEX.fullmatch(password) and len(password) >= 32)
        and any(map(str.isalpha, password))
        and bool(re.search(r"\d|[!@#$%^&*+?~=][^!?:.*]", password))
        and not re.fullmatch(r"[a-z]+(?:[_.\-/:][a-z0-9]+)+", password)
    )


def is_dense_password(password: str) -> bool:
    """Returns True for a mixed password that can't be the name of a variable either."""
    return is_mixed_password(password) and (
        not re.fullmatch(r"[A-Za-z_]+\d{0,3}|\w+", password)
        or len({kind for each in password for kind in _kinds(each)}) >= 3
    )


def _kinds(character: str) -> list[str]:
    tests = {"lower": str.islower, "upper": str.isupper, "digit": str.isdigit}
    return [name for name, test in tests.items() if test(character)]


def base62_checksum(text: str) -> str:
    """Returns the CRC-32 of a text as six digits of base 62, as tokens of GitHub and npm end."""
    value, digits = zlib.crc32(text.encode()), ""
    for _ in range(6):
        value, digit = divmod(value, 62)
        digits = _BASE62[digit] + digits
    return digits


def has_checksum(token: str) -> bool:
    """Returns True if the token's last six digits are its checksum, or if it looks random.

    A token without a right checksum may be of a newer form, so it is left only if it is plainly
    a placeholder.
    """
    body = token.partition("_")[2]
    return base62_checksum(body[:-6]) == body[-6:] or is_random(token)


def has_hex_checksum(token: str) -> bool:
    """Returns True if the token ends with the CRC-32 of what is before it."""
    body, _, crc = token.rpartition("_")
    return f"{zlib.crc32(body.encode()):08x}" == crc.lower() or is_random(token)


def is_jwt(token: str) -> bool:
    """Returns True if the first part decodes to a header that names an algorithm."""
    try:
        header = json.loads(_decoded(token.partition(".")[0]))
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and "alg" in header


def _decoded(text: str) -> bytes:
    text = text.rstrip("=")
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def names_discord_user(token: str) -> bool:
    """Returns True if the first part decodes to the digits of a user's id."""
    try:
        return _decoded(token.partition(".")[0]).isdigit()
    except (ValueError, binascii.Error):
        return False


def holds_login(value: str) -> bool:
    """Returns True if a value of basic authentication decodes to "user:password"."""
    try:
        login = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except (ValueError, UnicodeDecodeError):
        return False
    user, colon, password = login.partition(":")
    return bool(user and colon) and login.isprintable() and not is_weak_password(password)


def holds_key(value: str) -> bool:
    """Returns True if base64 begins with the head of a private key."""
    try:
        return b"PRIVATE KEY-----" in base64.b64decode(value[:80], validate=True)
    except ValueError:
        return False
