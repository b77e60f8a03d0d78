"""Secrets are found by their exact shapes, and what only looks alike is left."""

from __future__ import annotations

import base64
import itertools
import json
import string
import uuid
from collections.abc import Callable
from functools import partial
from hashlib import md5, sha1, sha256

import pytest

from kbproc.base.text.secrets import PRIVATE, REDACTED, WORDS, WORDS_OF, redact
from tests.kit.growth import MOST_GROWTH, least_growth
from tests.kit.made_keys import ALNUM, HEX, URL64, Maker

VARIANTS = 4  # the number of values for each kind


class KindMaker(Maker):
    """Makes values of the kinds whose structure is more than alphabets."""

    def jwt(self) -> str:
        header = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
        body = json.dumps({"sub": self.of(string.digits, 10), "iat": 1772719390}).encode()
        payload = base64.urlsafe_b64encode(body).decode().rstrip("=")
        return f"{header}.{payload}.{self.of(URL64, 43)}"

    def pem(self) -> str:
        kind = self.random.choice(["RSA ", "EC ", "OPENSSH ", ""])
        rows = "\n".join(self.of(ALNUM + "+/", 64) for _ in range(6))
        return f"-----BEGIN {kind}PRIVATE KEY-----\n{rows}\n-----END {kind}PRIVATE KEY-----"

    def discord(self) -> str:
        digits = self.random.choice("1234") + self.of(string.digits, 17)
        user = base64.b64encode(digits.encode()).decode()
        return f"{user}.{self.of(URL64, 6)}.{self.of(URL64, 38)}"

    def basic(self) -> str:
        return base64.b64encode(f"ann:{self.of(ALNUM, 14)}".encode()).decode()


# Kind → a function that makes (text, its secret part).
MAKERS: dict[str, Callable[[KindMaker], str]] = {
    "private_key": lambda m: m.pem(),
    "aws_access_key": lambda m: "AKIA" + m.of(string.ascii_uppercase + "234567", 16),
    "aws_secret_key": lambda m: f"aws_secret_access_key = {m.of(ALNUM + '/+', 39)}7",
    "github_token": lambda m: m.random.choice(["ghp_", "gho_", "ghs_"]) + m.checked(),
    "github_pat": lambda m: f"github_pat_{m.of(ALNUM, 22)}_{m.of(ALNUM, 59)}",
    "gitlab_token": lambda m: "glpat-" + m.of(ALNUM, 20),
    "anthropic_key": lambda m: "sk-ant-api03-" + m.of(URL64, 93) + "AA",
    "openai_key": lambda m: f"sk-proj-{m.of(ALNUM, 40)}T3BlbkFJ{m.of(ALNUM, 40)}",
    "openrouter_key": lambda m: "sk-or-v1-" + m.of(HEX, 64),
    "groq_key": lambda m: "gsk_" + m.of(ALNUM, 52),
    "xai_key": lambda m: "xai-" + m.of(ALNUM, 80),
    "replicate_token": lambda m: "r8_" + m.of(ALNUM, 37),
    "huggingface_token": lambda m: "hf_" + m.of(string.ascii_letters, 34),
    "google_api_key": lambda m: "AIza" + m.of(ALNUM, 35),
    "google_oauth_secret": lambda m: "GOCSPX-" + m.of(ALNUM, 28),
    "google_oauth_token": lambda m: "ya29." + m.of(ALNUM, 120),
    "azure_storage_key": lambda m: f"AccountName=a;AccountKey={m.of(ALNUM, 86)}==;",
    "slack_token": lambda m: (
        f"xoxb-{m.of('23456789', 12)}-{m.of('23456789', 12)}-{m.of(ALNUM, 24)}"
    ),
    "slack_webhook": lambda m: (
        f"https://hooks.slack.com/services/T{m.of('ACEG2468', 9)}/B{m.of('BDFH3579', 9)}"
        f"/{m.of(ALNUM, 24)}"
    ),
    "discord_webhook": lambda m: (
        f"https://discord.com/api/webhooks/{m.of('23456789', 18)}/{m.of(URL64, 68)}"
    ),
    "discord_token": lambda m: m.discord(),
    "telegram_token": lambda m: f"{m.of('23456789', 10)}:AA{m.of(ALNUM, 33)}",
    "stripe_key": lambda m: m.random.choice(["sk_live_", "rk_live_", "sk_test_"]) + m.of(ALNUM, 24),
    "stripe_webhook": lambda m: "whsec_" + m.of(ALNUM, 32),
    "sendgrid_key": lambda m: f"SG.{m.of(ALNUM, 22)}.{m.of(ALNUM, 43)}",
    "mailchimp_key": lambda m: f"{m.of(HEX, 32)}-us{m.random.randint(1, 21)}",
    "mailgun_key": lambda m: f"MAILGUN_KEY = key-{m.of(HEX, 32)}",
    "twilio_key": lambda m: f"twilio_auth: '{m.of(HEX, 32)}'",
    "npm_token": lambda m: "npm_" + m.checked(),
    "pypi_token": lambda m: "pypi-AgEIcHlwaS5vcmc" + m.of(URL64, 120),
    "rubygems_key": lambda m: "rubygems_" + m.of(HEX, 48),
    "digitalocean_token": lambda m: "dop_v1_" + m.of(HEX, 64),
    "shopify_token": lambda m: "shpat_" + m.of(HEX, 32),
    "square_token": lambda m: "sq0atp-" + m.of(ALNUM, 22),
    "databricks_token": lambda m: "dapi" + m.of(HEX, 32),
    "vault_token": lambda m: "hvs." + m.of(ALNUM, 90),
    "terraform_token": lambda m: f"{m.of(ALNUM, 14)}.atlasv1.{m.of(ALNUM, 67)}",
    "atlassian_token": lambda m: "ATATT3" + m.of(ALNUM, 186),
    "linear_key": lambda m: "lin_api_" + m.of(ALNUM, 40),
    "notion_token": lambda m: "ntn_" + m.of(ALNUM, 46),
    "postman_key": lambda m: f"PMAK-{m.of(HEX, 24)}-{m.of(HEX, 34)}",
    "grafana_token": lambda m: f"glsa_{m.of(ALNUM, 32)}_{m.of(HEX, 8)}",
    "newrelic_key": lambda m: "NRAK-" + m.of(string.ascii_uppercase + string.digits, 27),
    "supabase_token": lambda m: "sbp_" + m.of(HEX, 40),
    "planetscale_token": lambda m: "pscale_tkn_" + m.of(ALNUM, 43),
    "age_key": lambda m: "AGE-SECRET-KEY-1" + m.of("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "jwt": lambda m: m.jwt(),
    "authorization": lambda m: f"Authorization: Bearer {m.of(ALNUM, 40)}7a",
    "basic_login": lambda m: f"Authorization: Basic {m.basic()}",
    "connection_string": lambda m: (
        f"{m.random.choice(['postgres', 'mysql', 'redis', 'mongodb+srv'])}://app:"
        f"{m.of(ALNUM, 16)}@db.internal:5432/crane"
    ),
    "environment_line": lambda m: (
        f"{m.random.choice(['SESSION_SECRET', 'SENTRY_TOKEN', 'DB_PASSWORD'])}={m.of(ALNUM, 22)}7k"
    ),
    "named_secret": lambda m: f'"client_secret": "{m.of(ALNUM, 30)}7k"',
    "query_secret": lambda m: f"https://a.org/f?sig={m.of(ALNUM, 40)}7k",
    "password": lambda m: f"password: {m.of(ALNUM, 9)}7k",
    "cookie": lambda m: f"Cookie: theme=dark; sid={m.of(ALNUM, 30)}7k",
    "command_password": lambda m: f"curl -u ann:{m.of(ALNUM, 12)}7k https://a.org",
    "credentials_file": lambda m: f"machine a.org login ann password {m.of(ALNUM, 12)}7k",
    "encoded_logins": lambda m: base64.b64encode(
        json.dumps({"auths": {"a.org": {"auth": m.basic()}}}, separators=(",", ":")).encode()
    ).decode(),
    "encoded_private_key": lambda m: base64.b64encode(m.pem().encode()).decode(),
    **{
        kind: partial(KindMaker.fill, form=form)
        for kind, form in {
            "langfuse_key": "sk-lf-{h8}-{h4}-{h4}-{h4}-{h12}",
            "model_key": "sk-{h32}",
            "perplexity_key": "pplx-{a48}",
            "tavily_key": "tvly-dev-{a32}",
            "nvidia_key": "nvapi-{u64}",
            "fireworks_key": "fw_{a22}7k",
            "together_key": "tgp_v1_{u43}",
            "elevenlabs_key": "sk_{h48}",
            "langsmith_key": "lsv2_pt_{h32}_{h10}",
            "cerebras_key": "csk-{l48}",
            "jina_key": "jina_{h32}{a28}",
            "pinecone_key": "pcsk_{a70}",
            "firecrawl_key": "fc-{h32}",
            "azure_client_secret": "{a3}8Q~{a34}",
            "teams_webhook": "https://a.webhook.office.com/webhookb2/{h8}-{h4}-{h4}-{h4}-{h12}"
            "@{h8}-{h4}-{h4}-{h4}-{h12}/IncomingWebhook/{h32}/{h8}-{h4}-{h4}-{h4}-{h12}",
            "razorpay_key": "rzp_live_{a14}",
            "brevo_key": "xkeysib-{h64}-{a16}",
            "resend_key": "re_{a8}_{a22}7k",
            "nuget_key": "oy2{l43}",
            "crates_token": "cio{a30}7k",
            "docker_token": "dckr_pat_{u27}",
            "pulumi_token": "pul-{h40}",
            "heroku_key": "HRKU-AA{u58}",
            "fly_token": "fo1_{u43}",
            "netlify_token": "nfp_{a36}",
            "render_key": "rnd_{a26}7k",
            "doppler_token": "dp.pt.{a43}",
            "tailscale_key": "tskey-auth-{a17}-{a32}",
            "figma_token": "figd_{u40}",
            "airtable_token": "pat{a14}.{h64}",
            "hubspot_token": "pat-na1-{h8}-{h4}-{h4}-{h4}-{h12}",
            "contentful_token": "CFPAT-{u43}",
            "grafana_cloud_token": "glc_eyJ{a80}",
            "sentry_token": "sntryu_{h64}",
            "posthog_key": "phx_{a43}",
            "sonar_token": "squ_{h40}",
            "dynatrace_token": "dt0c01.{A24}.{A64}",
            "mapbox_token": "sk.eyJ{a60}.{a22}",
        }.items()
    },
}
_AROUND = [
    "{}",
    "Please use {} for the call.",
    'curl -H "X: {}" https://a.org',
    "config = {{\n  value: {}\n}}",
    "- {}\n- next",
    "({})",
]


def test_every_kind_has_a_maker() -> None:
    assert set(WORDS_OF) == set(MAKERS)
    assert len(WORDS_OF) * VARIANTS >= 300
    assert all(REDACTED + kind in WORDS for kind in WORDS_OF)


def test_variants_of_a_shape_are_redacted() -> None:
    wrong = []
    for kind, number in itertools.product(MAKERS, range(VARIANTS)):
        value = MAKERS[kind](KindMaker(f"{kind}{number}"))
        text = _AROUND[number % len(_AROUND)].format(value)
        redaction = redact(text)
        if kind == "connection_string":
            value = value.partition("@")[0].rpartition(":")[2]
        longest = max(value.replace("\n", " ").split(), key=len)[-12:].strip("'\";=)")
        is_shown = longest in redaction.text
        again = redact(redaction.text)
        outcome = (redaction.counts, is_shown, again)
        if outcome != ({REDACTED + kind: 1}, False, (redaction.text, {})):
            wrong.append((kind, text, *outcome))
    assert wrong == []


def test_escaped_text_is_redacted_too() -> None:
    pem = KindMaker("pem").pem()
    assert redact(json.dumps({"key": pem})).counts == {"redacted_private_key": 1}


def _lookalikes() -> list[str]:
    maker = Maker("alike")
    texts: list[str] = []
    for number in range(200):
        seed = str(number).encode()
        hashes = [md5(seed).hexdigest(), sha1(seed).hexdigest(), sha256(seed).hexdigest()]
        integrity = base64.b64encode(sha256(seed).digest() * 2).decode()
        texts += [
            f"commit {hashes[1]}",
            f'"sha256": "{hashes[2]}"',
            f"{hashes[0]}  archive.tar.gz",
            f'"integrity": "sha512-{integrity}"',
            f'id = "{uuid.UUID(hashes[0])}"',
            f"token = '{uuid.UUID(hashes[0])}'",
            f"data:image/png;base64,{maker.of(ALNUM + '+/', 300)}",
            f'resolved "https://registry.npmjs.org/a/-/a-1.0.{number}.tgz#{hashes[1]}"',
            f'csrf_token: "{hashes[0]}"',
            f'"etag": "{hashes[0]}", "next_page_token": "{hashes[1]}"',
        ]
    return texts + _fixtures() * 2


def _fixtures() -> list[str]:
    """Placeholders of documentation and tests."""
    return [
        "AKIAIOSFODNN7EXAMPLE",
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "OPENAI_API_KEY=sk-your-key-here",
        "ANTHROPIC_API_KEY=<your key>",
        "API_KEY=${API_KEY}",
        "export TOKEN=$(pass show token)",
        "DB_PASSWORD=changeme",
        "POSTGRES_PASSWORD=postgres",
        "postgres://user:password@localhost:5432/db",
        "postgres://user:pass@localhost/db",
        "redis://:${REDIS_PASSWORD}@cache:6379",
        "mysql://root:root@127.0.0.1/test",
        "https://example.org:8080/@scope/name",
        "git@github.com:a/b.git",
        "ssh://git@github.com:22/a/b.git",
        "max_tokens=4096",
        "secret_key = settings.SECRET_KEY",
        'password = os.environ["PASSWORD"]',
        'api_key="your_api_key_goes_here_1"',
        "password: string | undefined",
        "Authorization: Bearer <token>",
        "Authorization: Bearer ${process.env.TOKEN_OF_THE_SERVICE_1}",
        "-----BEGIN PUBLIC KEY-----",
        "-----BEGIN PRIVATE KEY-----",
        "the header begins with eyJ and a dot.eyJ",
        "eyJmb28iOiJiYXIifQ.eyJmb28iOiJiYXIifQ.c2lnbmF0dXJl",
        "sk-learn and sk-proj are no keys",
        "SG.something.else",
        "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA",
        "PRIVATE_KEY_PATH=/home/ann/.ssh/id_ed25519",
        "SSH_PASSPHRASE_FILE=/run/secrets/passphrase_of_ssh",
        "npm_config_registry",
        "hf_hub_download hf_transfer",
        "secret_manager_secret_version_access",
        "https://a.org/?token=next_page_of_results_please",
        "KEY=0000000000000000000000000000000000000000",
    ]


def test_lookalikes_are_left() -> None:
    texts = _lookalikes()
    assert len(texts) >= 2000
    touched = [text for text in texts if redact(text).counts]
    assert touched == []
    whole = "\n".join(texts)
    assert redact(whole) == (whole, {})


def test_private_passages_go() -> None:
    redaction = redact("before <private>Ann's\nsalary</private> after <PRIVATE>x</PRIVATE>")
    assert redaction == ("before [private] after [private]", {PRIVATE: 2})
    assert redact("an open <private> tag").counts == {}
    assert redact("<private>a <private>b</private> c</private>").text == "[private] c</private>"


def test_elements_that_divide_a_secret_stay_in_pairs() -> None:
    token = "gh" + "p_" + Maker("divided").checked()
    text = f"<b>{token[:6]}</b><i>{token[6:20]}\u200b{token[20:]}</i>."
    assert redact(text).text == "<b>[redacted: GitHub token]</b><i></i>."


# Texts of these begin many secrets or divisions, and end none.
_ENDLESS = [
    "<private>",
    "<private></",
    "-----BEGIN PRIVATE KEY-----",
    "-----END PRIVATE KEY-----",
    "AKIA eyJ. :// ",
    "key=' ",
    "key=",
    'key="',
    "://x:y",
    "://a:b@",
    "eyJa.",
    "MTa.",
    "sk-T3BlbkFJ",
    "1:AA",
    "a-us1",
    "?token=",
    "glpat-a<i>",
    "Private-Lines: 9 ",
    "&amp;#",
    "\\",
    "\\u003ca",
    "&lt;a",
    "<a ",
    "<!",
    "%25",
    "[1;",
    "^[[",
    "a*b`c",
    "curl -u a:",
    "mysql -p ",
    ":5432:a:",
    "machine a login b ",
    "cookie a=",
    "-b a=",
    "authorization: ",
    "auth=",
    "password: ",
    "key value=",
    "--password ",
    "HRKU-",
    "fm2 ",
    "server=a;password=b;",
    "xoxe.xoxb-1-",
    "LS0tLS1CRUdJTi",
    "aB3/",
    "mailgun key",
    "twilio=",
    "xoxe.",
    "-----BEGIN PRIVATE KEY-----\n",
    "\x1b]",
    "a\u200b",
    "Private-Lines: 9\n",
    "fm2_",
]
_SIZE = 1_000


def _repeated(part: str, size: int) -> str:
    return part * (size // len(part)) + "</"


def test_no_text_takes_longer_than_in_proportion(subtests: pytest.Subtests) -> None:
    for part in _ENDLESS:
        with subtests.test(f"{part!r:.80}"):
            assert least_growth(redact, partial(_repeated, part), size=_SIZE) <= MOST_GROWTH
