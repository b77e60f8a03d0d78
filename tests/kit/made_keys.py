"""Makes keys that no service has ever issued, from forms such as "pplx-{a48}"."""

from __future__ import annotations

import base64
import random
import re
import string
from collections.abc import Callable
from typing import NamedTuple

from kbproc.base.text.secret_values import base62_checksum

ALNUM = string.ascii_letters + string.digits
URL64 = ALNUM + "-_"
HEX = "0123456789abcdef"
# The letter of a form → the characters from which it draws.
ALPHABETS = {
    "a": ALNUM,
    "u": ALNUM,  # base64 of addresses, without signs so that a word's edge is one
    "h": HEX,
    "d": "23456789",
    "l": string.ascii_lowercase + string.digits,
    "A": string.ascii_uppercase + string.digits,
    "t": string.ascii_letters,
    "k": string.ascii_uppercase + "234567",
}


class Maker:
    """Makes values of given alphabets from a seed."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def of(self, alphabet: str, size: int) -> str:
        return "".join(self.random.choice(alphabet) for _ in range(size))

    def checked(self, size: int = 30) -> str:
        body = self.of(ALNUM, size)
        return body + base62_checksum(body)

    def fill(self, form: str) -> str:
        """Returns a form with `{a48}` replaced by 48 characters of the alphabet "a", and so on."""
        return re.sub(
            r"\{(\w)(\d+)\}", lambda match: self.of(ALPHABETS[match[1]], int(match[2])), form
        )


_UUID = "{h8}-{h4}-4{h3}-a{h3}-{h12}"
# Service → forms of its keys.
SERVICES: dict[str, tuple[str, ...]] = {
    "AWS": ("AK" + "IA{k16}", "AS" + "IA{k16}"),
    "Airtable": ("pat{a14}.{h64}",),
    "Anthropic": ("sk-" + "ant-api03-{u93}AA",),
    "Cerebras": ("csk-{l48}",),
    "Databricks": ("dapi{h32}",),
    "DeepSeek": ("sk-{h32}",),
    "DigitalOcean": ("dop_v1_{h64}",),
    "Discord": ("https://discord.com/api/webhooks/«{d18}/{u68}»",),
    "Docker": ("dckr_" + "pat_{u27}", "dckr_" + "oat_{u32}"),
    "Doppler": ("dp.pt.{a43}", "dp.st.dev.{a43}"),
    "ElevenLabs": ("sk_{h48}",),
    "Figma": ("figd_{u40}",),
    "Fireworks": ("fw_{a22}7k",),
    "GitHub": ("gh" + "p_{a36}", "github_" + "pat_{a22}_{a59}"),
    "GitLab": ("gl" + "pat-{a20}",),
    "Google": ("AI" + "za{a35}", "GOC" + "SPX-{a28}", "ya" + "29.{a120}"),
    "Grafana": ("glsa_{a32}_{h8}",),
    "Grafana Cloud": ("glc_eyJ{a120}",),
    "Groq": ("gsk_{a52}",),
    "Heroku": ("HRKU-AA{u58}", f"HRKU-{_UUID}"),
    "HubSpot": (f"pat-na1-{_UUID}",),
    "Hugging Face": ("hf" + "_{t34}",),
    "LangSmith": ("lsv2_" + "pt_{h32}_{h10}", "lsv2_" + "sk_{h32}_{h10}"),
    "Linear": ("lin_" + "api_{a40}",),
    "Mailchimp": ("{h32}-us14",),
    "NVIDIA": ("nvapi-{u64}",),
    "Netlify": ("nfp_{a36}",),
    "Notion": ("ntn_{a46}",),
    "OpenAI": ("sk-" + "proj-{u74}T3Blbk" + "FJ{u74}",),
    "OpenRouter": ("sk-" + "or-v1-{h64}",),
    "Perplexity": ("pplx-{a48}",),
    "Pinecone": ("pcsk_{a70}",),
    "PostHog": ("phx_{a43}",),
    "PyPI": ("pypi-" + "AgEIcHlwaS5vcmc{u130}",),
    "Replicate": ("r8" + "_{a37}",),
    "Resend": ("re_{a8}_{a22}7k",),
    "SendGrid": ("SG" + ".{u22}.{u43}",),
    "Sentry": ("sntryu_{h64}", "sntrys_eyJ{a120}_{a43}"),
    "Shopify": ("shp" + "at_{h32}",),
    "Slack": ("xo" + "xb-{d12}-{d12}-{a24}",),
    "Stripe": ("sk_" + "live_{a24}", "whsec_{a32}"),
    "Supabase": ("sbp_{h40}", "sb_" + "secret_{u22}_{u8}"),
    "Tailscale": ("tskey-" + "auth-{a17}-{a32}", "tskey-" + "api-{a17}-{a32}"),
    "Tavily": ("tvly-{a32}", "tvly-dev-{a32}"),
    "Teams": (
        f"https://crane.webhook.office.com/«webhookb2/{_UUID}@{_UUID}/IncomingWebhook/{{h32}}/{_UUID}»",
    ),
    "Telegram": ("{d10}:AA{u33}", "https://api.telegram.org/bot«{d10}:AA{u33}»/getMe"),
    "Together": ("tgp_v1_{u43}",),
    "Vault": ("hvs.{a90}",),
    "npm": ("npm" + "_{a36}",),
    "xAI": ("xai-{a80}",),
}
_WORD = "Kr4n{a6}7!"  # a short password
# Place → texts with a secret, whose secret part stands between « and ».
PLACES: dict[str, tuple[str, ...]] = {
    "`.netrc`": (f"machine a.org\n  login ann\n  password «{_WORD}»\n",),
    "`.npmrc`": (
        "//registry.npmjs.org/:_authToken=«{a36}»",
        "_auth=«" + "{login}»",
    ),
    "`.pgpass`": (f"db.internal:5432:crane:app:«{_WORD}»\n", f"*:*:*:app:«{_WORD}»\n"),
    "`Authorization:`": (
        "Authorization: Bearer «{a40}7k»",
        "Authorization: Basic «{login}»",
        '{"Authorization": "token «{a40}7k»"}',
    ),
    "`Cookie:`": ("Cookie: theme=dark; «sid={a30}7k»", "Set-Cookie: «sid={a40}7k; Path=/»"),
    "`Password=…;`": (
        f"Server=db;Database=crane;User Id=app;Password=«{_WORD}»;",
        "Server=db;Uid=app;Pwd=«hookandropes»;Pooling=true",
        "Endpoint=sb://a.servicebus.windows.net/;SharedAccessKeyName=r;SharedAccessKey=«{a43}=»",
    ),
    "`X-API-Key:`": (
        "X-API-Key: «{a32}7k»",
        "xi-api-key: «{h32}»",
        "PRIVATE-TOKEN: «{a24}7k»",
        "curl -H 'api-key: «{a32}7k»' https://a.org",
    ),
    "`curl -u`": (
        f"curl -u ann:«{_WORD}» https://a.org",
        "curl -sS --user 'ann:«{a12}7k»' https://a.org",
        "curl -X POST \\\n  -u ann:«{a12}7k» \\\n  https://a.org",
    ),
    "`docker login`": ("docker login -u ann -p «{a14}7k» a.org",),
    "`mysql -p`": (
        f"mysql -h db -u root -p«{_WORD}» crane",
        "mysqldump -uroot -p'«{a12}7k»' crane",
    ),
    "`redis-cli -a`": ("redis-cli -h cache -a «{a14}7k» ping",),
    "`sshpass`": (f"sshpass -p «{_WORD}» ssh ann@a.org", "sshpass -p'«{a12}7k»' ssh ann@a.org"),
    "a flag": ("deploy --password «{a10}7k» --force", "deploy --api-key=«{a30}7k»"),
    "an address": (
        "postgres://app:«{a16}»@db.internal:5432/crane",
        "postgresql+asyncpg://app:«{a16}»@db/crane",
        "mysql+pymysql://app:«{a12}»@db/crane",
        "mongodb+srv://app:«{a12}»@db.internal/crane",
        "redis://:«{a12}7k»@cache:6379/0",
        "postgres://app:«p@ss{a8}/w»@db.internal:5432/crane",
        "https://ann:«{a20}»@git.a.org/crane.git",
        "https://a.org/f?access_token=«{a40}7k»&x=1",
        "https://a.org/f?x=1&amp;sig=«{a40}7k»",
    ),
    "an environment line": (
        "SESSION_SECRET=«{a22}7k»",
        "export DB_PASSWORD='«hookandropes»'",
        "SMTP_PASS=«hookandropes»",
        "AWS_SECRET_ACCESS_KEY=«{a39}7»",
        f"HEROKU_API_KEY=«{_UUID}»",
    ),
    "aws credentials": (
        "aws_secret_access_key = «{a39}7»",
        "aws_session_token = «{a200}7k==»",
    ),
    "docker's `auths`": ('{"auths": {"a.org": {"auth": "«{login}»"}}}',),
    "kubeconfig": (
        "    client-key-data: «{encoded_pem}»",
        "    token: «{a40}7k»\n",
        "    password: «{a10}7k»\n",
    ),
    "a password in JSON": (
        f'{{"user": "app", "password": "«{_WORD}»"}}',
        '{"db_password": "«{a6}7k»", "x": 1}',
        "{'passwd': '«{a6}7k»'}",
    ),
    "a password in YAML": (
        f"db:\n  user: app\n  password: «{_WORD}»\n",
        'db:\n  password: "«{a6}7k»"\n',
        "env:\n  - name: DB_PASSWORD\n    value: «{a8}7k»\n",
        "services:\n  db:\n    environment:\n      POSTGRES_PASSWORD: «hookandropes»\n",
    ),
    "a password in properties, TOML and XML": (
        f"spring.datasource.password=«{_WORD}»\n",
        f'password = "«{_WORD}»"\n',
        f"<server><username>app</username><password>«{_WORD}»</password></server>",
        f'<add key="DbPassword" value="«{_WORD}»" />',
    ),
    "a secret behind its name": (
        '"client_secret": "«{a30}7k»"',
        "apiKey: '«{a30}7k»'",
        "api_key = «{a30}7k»\n",
        "secret_key: «{a40}7k»\n",
    ),
}
_PEM_ROWS = "".join("{a64}\n" for _ in range(5)) + "{a40}==\n"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{_PEM_ROWS}-----END RSA PRIVATE KEY-----\n"


def _prefixed(form: str) -> Callable[[str], str]:
    def with_prefix(text: str) -> str:
        lines = enumerate(text.splitlines(), 1)
        return "".join(f"{form.format(number)}{line}\n" for number, line in lines)

    return with_prefix


# How a program shows a private key → a function of the key.
SHOWN: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in JSON": lambda key: key.replace("\n", "\\n"),
    "in JSON within JSON": lambda key: key.replace("\n", "\\\\n"),
    "on one line": lambda key: key.replace("\n", " "),
    "with numbers and arrows": _prefixed("{:6d}\u2192"),
    "with numbers and tabs": _prefixed("{:6d}\t"),
    "by `grep -n`": _prefixed("{}:"),
    "by `grep -rn`": _prefixed("etc/key.pem:{}:"),
    "quoted": _prefixed("> "),
    "as a change": _prefixed("+"),
    "in a comment": _prefixed("# "),
    "with empty lines between": lambda key: key.replace("\n", "\n\n"),
    "with a gap": lambda key: "".join(
        f"{line}\n" if number != 3 else "[… 1 line left out …]\n"
        for number, line in enumerate(key.splitlines())
    ),
    "as strings": lambda key: "".join(f'  "{line}\\n"\n' for line in key.splitlines()),
    "in colour": _prefixed("\x1b[32m{}\x1b[0m:\x1b[1m"),
    "in colour without its escapes": _prefixed("[32m{}[0m:[1m"),
    "its head alone": lambda key: "".join(key.splitlines(True)[:4]),
    "its end alone": lambda key: "".join(key.splitlines(True)[-4:]),
    "its head with numbers": lambda key: _prefixed("{:6d}\u2192")(
        "".join(key.splitlines(True)[:4])
    ),
}


def _split(token: str) -> tuple[str, str, str]:
    """Returns a token in three parts, of which the first is some of its prefix."""
    return token[:3], token[3:12], token[12:]


# A division of a token, or of its neighbours → a function that writes the token so.
DIVISIONS: dict[str, Callable[[str], str]] = {
    "nothing": str,
    "escapes of Markdown": lambda token: re.sub(r"([_.\-])", r"\\\1", token),
    "emphasis of Markdown": lambda token: "{}{}**{}**".format(*_split(token)),
    "elements of HTML": lambda token: "<span>{}</span><span class='k'>{}</span>{}".format(
        *_split(token)
    ),
    "a comment and an element without an end": lambda token: "{}<!-- -->{}<wbr>{}".format(
        *_split(token)
    ),
    "elements beside it": lambda token: f"<td>name</td><td>{token}</td><td>Next</td>",
    "entities": lambda token: f"&#{ord(token[0])};&#x{ord(token[1]):x};{token[2:]}",
    "tags of captions": lambda token: "<c.green>{}</c><00:00:01.500><i>{}</i>{}".format(
        *_split(token)
    ),
    "escapes of JSON and YAML": lambda token: (
        f"\\u{ord(token[0]):04x}{token[1:4]}\\x{ord(token[4]):02x}{token[5:]}"
    ),
    "elements in escapes of JSON": lambda token: r"\u003cb\u003e{}\u003c/b\u003e{}{}".format(
        *_split(token)
    ),
    "percent signs": lambda token: (
        f"%{ord(token[0]):02X}{token[1:3]}%25{ord(token[3]):02x}{token[4:]}"
    ),
    "colours": lambda token: "\x1b[31m{}\x1b[0m{}\x1b[1;32m{}\x1b[m".format(*_split(token)),
    "colours of `grep`": lambda token: f"a\x1b[01;31m\x1b[K{token}\x1b[m\x1b[Kb",
    "colours without their escapes": lambda token: "[31m{}[0m{}[1;32m{}[0m".format(*_split(token)),
    "colours as escapes": lambda token: r"\x1b[31m{}\u001b[0m{}\033[1m{}\e[0m".format(
        *_split(token)
    ),
    "unseen characters": lambda token: "{}\u200b{}\u00ad\ufeff{}\ufe0f".format(*_split(token)),
    "a literal line break before it": lambda token: f"one\\n{token}\\ntwo",
    "a line break in JSON within JSON": lambda token: f"one\\\\n{token}\\\\ntwo",
    "a quote as percent signs before it": lambda token: f"q%3D%22{token}%22",
    "a quote as an escape before it": lambda token: f"q=\\u0022{token}\\u0022",
}


class _KeyMaker(Maker):
    """Fills forms that name a login or a private key, too."""

    def fill(self, form: str) -> str:
        login = base64.b64encode(f"ann:{self.of(ALNUM, 14)}".encode()).decode()
        encoded = base64.b64encode(super().fill(PEM).encode()).decode()
        return super().fill(form.replace("{login}", login).replace("{encoded_pem}", encoded))


class MadeKey(NamedTuple):
    """A text with a made-up secret. `kind`: the service or the place."""

    kind: str
    text: str
    secret: str


def keys_of_services() -> list[MadeKey]:
    """Returns a key for each form of each service."""
    return _made(SERVICES)


def keys_in_places() -> list[MadeKey]:
    """Returns a text with a secret for each form of each place."""
    return _made(PLACES)


def _made(all_forms: dict[str, tuple[str, ...]]) -> list[MadeKey]:
    keys = []
    for kind, forms in all_forms.items():
        for number, form in enumerate(forms):
            text = _KeyMaker(f"{kind}{number}").fill(form)
            secret = text[text.find("«") + 1 :].partition("»")[0]
            keys.append(MadeKey(kind, re.sub("[«»]", "", text), secret))
    return keys


def private_keys_shown() -> list[MadeKey]:
    key = Maker("pem").fill(PEM)
    return [MadeKey(how, show(key), key) for how, show in SHOWN.items()]


def traces(secret: str, text: str) -> list[str]:
    """Returns the parts of a secret, each of at least eight characters, that a text still holds."""
    words = re.findall(r"[A-Za-z0-9!@/+]{8,}", secret)
    parts = {word[place : place + 8] for word in words for place in range(len(word) - 7)}
    return sorted(part for part in parts if part in text)


# Kind → public values, which are no secrets.
PUBLIC: dict[str, tuple[str, ...]] = {
    "examples of documentation": (
        "AKIA" + "IOSFODNN7EXAMPLE",
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "postgres://user:password@localhost:5432/db",
        "mysql -u root -proot test",
        "curl -u user:password https://a.org",
        "Authorization: Bearer <token>",
    ),
    "placeholders": (
        "ghp_" + "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "OPENAI_API_KEY=sk-your-key-here",
        "DB_PASSWORD=changeme",
        "password: ${DB_PASSWORD}",
        "api_key: {{ secrets.API_KEY }}",
        "redis://:${REDIS_PASSWORD}@cache:6379",
    ),
    "hashes and checksums": (
        "commit 4c0ae6c9b1d27f3a5e8890cd1f2b3a4c5d6e7f80",
        "sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        '"integrity": "sha512-m5Wb0r4yZ3X7v9Q1kT2nL8pD6sF4hG0jK1lM3nB5vC7xZ9qW2eR4tY6uI8oP0aS=="',
        '"etag": "5d41402abc4b2a76b9719d911017c592"',
        "password_hash: $2b$12$KIXQ8vN5h3Zp7s1Yw2Rr4uT6xA9bC0dE",
        "pkg:npm/left-pad@1.3.0?checksum=sha1:5b8a3a7765dfe001261dde915589e782f8c94d1e",
    ),
    "ids": (
        "id: 550e8400-e29b-41d4-a716-446655440000",
        'token = "7c9e6679-7425-40de-944b-e07fc1f90ae7"',
        "arn:aws:iam::123456789012:role/deploy-role",
        "01HF8Z5W9Q3T7V2X4Y6B8C0DEF",
        "G-4N8QK2LMX7 and UA-98213475-1",
    ),
    "public keys and what is meant for browsers": (
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHk4vQ9sT2mWx7Zb1Nc5Td3Fg6Hj0Ps8Ya2Ue4Ri ann@crane",
        "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEk4vQ9sT2mWx7Zb1Nc5Td3F\n"
        "-----END PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQ9sT2mWx7Zb1Nc5Td3Fg6Hj0Ps8Ya2Ue4Ri\n"
        "-----END CERTIFICATE-----",
        "pk_" + "live_51Hk4vQ9sT2mWx7Zb1Nc5Td3F",
        "phc_Wx7Zb1Nc5Td3Fg6Hj0Ps8Ya2Ue4RiK1oP3wXzQ9sT2m",
        "sb_publishable_Wx7Zb1Nc5Td3Fg6Hj0Ps8Y_a2Ue4RiK",
    ),
    "code": (
        'password = os.environ["DB_PASSWORD"]',
        "const token = await getToken(user1.id)",
        "password: string | undefined",
        "self.secret_key = settings.SECRET_KEY_2026",
        "if (password.length < 12) return",
        "const apiKeyHeaderName = 'x-api-key'",
    ),
    "words": (
        "The machine in the default login asks for a password again.",
        "Password: at least 12 characters, one of them a digit.",
        'reset_password: "Passwort zurücksetzen"',
        "The token bucket refills at 100/s; its key is user_id:route_7.",
        "-----BEGIN PRIVATE KEY----- is how such a file begins.",
        "main.c:12:5:error:expected a semicolon",
        "https://example.org:8080/@scope/name",
        "Cookie: theme=dark; lang=de",
        "docker run -p 8443:8443 nginx",
        "https://a.org/?token=next_page_of_results_please",
    ),
}
