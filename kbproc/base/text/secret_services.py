"""Lists the tokens of services: a prefix with a fixed alphabet and length, or a structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kbproc.base.text.secret_values import (
    has_checksum,
    has_hex_checksum,
    holds_key,
    is_hex,
    is_jwt,
    is_random,
    is_strong,
    is_uuid,
    names_discord_user,
)

Check = Callable[[str], bool]


class Service(NamedTuple):
    """A kind of token that stands for itself. `words`: its name for people.

    One of the `literals` is in every match, at most `before` characters behind its start. The
    pattern's group "secret" is what goes, or else the whole match; `check` may refuse it.
    """

    kind: str
    words: str
    literals: tuple[str, ...]
    pattern: str
    check: Check
    before: int


def _token(
    kind: str,
    words: str,
    literals: str,
    pattern: str,
    check: Check = is_random,
    before: int = 0,
) -> Service:
    return Service(kind, words, tuple(literals.split()), pattern, check, before)


def _is_strong_key(value: str) -> bool:
    return is_strong(value) or (is_hex(value[3:]) and is_random(value))


def _ends_in_uuid(value: str) -> bool:
    return is_uuid(value[-36:])


_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"

SERVICES: tuple[Service, ...] = (
    _token("aws_access_key", "AWS access key", "AKIA ASIA", r"A(?:KI|SI)A[A-Z2-7]{16}"),
    _token(
        "github_token",
        "GitHub token",
        "ghp_ gho_ ghu_ ghs_ ghr_",
        r"gh[pousr]_[A-Za-z0-9]{36}",
        has_checksum,
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
        "glpat- gldt- glrt- glft- glptt- glcbt- glsoat- glimt- glagent- gloas-",
        r"gl(?:pat|dt|rt|ft|ptt|cbt|soat|imt|agent|oas)-[A-Za-z0-9_-]{20,300}"
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
        "sk-",
        r"sk-(?:(?:proj|svcacct|admin|None)-)?[A-Za-z0-9_-]{20,120}T3BlbkFJ[A-Za-z0-9_-]{20,120}",
    ),
    _token("openrouter_key", "OpenRouter key", "sk-or-v1-", r"sk-or-v1-[0-9a-f]{64}"),
    _token("langfuse_key", "Langfuse key", "sk-lf-", rf"sk-lf-{_UUID}", _ends_in_uuid),
    _token(
        "model_key", "key of a model's service", "sk-", r"sk-[A-Za-z0-9]{32,64}", _is_strong_key
    ),
    _token("groq_key", "Groq key", "gsk_", r"gsk_[A-Za-z0-9]{52}"),
    _token("xai_key", "xAI key", "xai-", r"xai-[A-Za-z0-9]{80}"),
    _token("replicate_token", "Replicate token", "r8_", r"r8_[A-Za-z0-9]{37}"),
    _token("huggingface_token", "Hugging Face token", "hf_", r"hf_[A-Za-z]{34}"),
    _token("perplexity_key", "Perplexity key", "pplx-", r"pplx-[A-Za-z0-9]{40,64}"),
    _token(
        "tavily_key",
        "Tavily key",
        "tvly-",
        r"tvly-(?:(?:dev|prod)-)?[A-Za-z0-9]{16,64}(?:-[A-Za-z0-9]{8,64})?",
    ),
    _token("nvidia_key", "NVIDIA key", "nvapi-", r"nvapi-[A-Za-z0-9_-]{60,80}"),
    _token(
        "fireworks_key", "Fireworks key", "fw_ fpk_", r"f(?:w|pk)_[A-Za-z0-9]{20,40}", is_strong
    ),
    _token("together_key", "Together key", "tgp_v1_", r"tgp_v1_[A-Za-z0-9_-]{40,48}"),
    _token(
        "elevenlabs_key",
        "ElevenLabs key",
        "sk_",
        r"sk_[a-f0-9]{48}",
    ),
    _token(
        "langsmith_key",
        "LangSmith key",
        "lsv2_ ls__",
        r"lsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}|ls__[a-f0-9]{32}",
    ),
    _token("cerebras_key", "Cerebras key", "csk-", r"csk-[a-z0-9]{48}"),
    _token("jina_key", "Jina key", "jina_", r"jina_[A-Za-z0-9_-]{55,65}"),
    _token("pinecone_key", "Pinecone key", "pcsk_", r"pcsk_[A-Za-z0-9_]{60,80}"),
    _token("firecrawl_key", "Firecrawl key", "fc-", r"fc-[a-f0-9]{32}"),
    _token("google_api_key", "Google API key", "AIza", r"AIza[A-Za-z0-9_-]{35}"),
    _token("google_oauth_secret", "Google OAuth secret", "GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{28}"),
    _token("google_oauth_token", "Google OAuth token", "ya29.", r"ya29\.[A-Za-z0-9_-]{30,2000}"),
    _token(
        "azure_client_secret",
        "Azure client secret",
        "Q~",
        r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}",
        before=4,
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
        r"hooks\.slack\.com/(?P<secret>(?:services|workflows|triggers)"
        r"/[TE][A-Z0-9]{7,12}/[AB]?[A-Z0-9]{7,20}/[A-Za-z0-9]{20,40})",
    ),
    _token(
        "teams_webhook",
        "Teams webhook",
        ".webhook.office.com/ outlook.office.com/webhook",
        rf"(?:\.webhook|outlook)\.office\.com/(?P<secret>webhook(?:b2)?/{_UUID}@{_UUID}"
        rf"/IncomingWebhook/[0-9a-f]{{32}}/{_UUID}(?:/[\w-]{{20,80}})?)",
    ),
    _token(
        "discord_webhook",
        "Discord webhook",
        "/api/webhooks/",
        r"/api/webhooks/(?P<secret>\d{17,20}/[\w-]{60,80})",
    ),
    _token(
        "discord_token",
        "Discord bot token",
        "MT Mj Mz ND NT Nj Nz OD OT",
        r"[MNO][A-Za-z0-9]{22,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}",
        names_discord_user,
    ),
    _token(
        "telegram_token",
        "Telegram bot token",
        ":AA",
        r"(?:bot)?(?P<secret>\d{8,10}:AA[A-Za-z0-9_-]{33})",
        before=13,
    ),
    _token(
        "stripe_key",
        "Stripe key",
        "sk_live_ rk_live_ sk_test_ rk_test_",
        r"[rs]k_(?:live|test)_[A-Za-z0-9]{24,110}",
    ),
    _token("stripe_webhook", "Stripe webhook secret", "whsec_", r"whsec_[A-Za-z0-9+/]{32,64}=*"),
    _token("razorpay_key", "Razorpay key", "rzp_live_", r"rzp_live_[A-Za-z0-9]{14,20}"),
    _token("sendgrid_key", "SendGrid key", "SG.", r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    _token("mailchimp_key", "Mailchimp key", "-us", r"[0-9a-f]{32}-us\d{1,2}", before=32),
    _token("brevo_key", "Brevo key", "xkeysib-", r"xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    _token("resend_key", "Resend key", "re_", r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}", is_strong),
    _token("npm_token", "npm token", "npm_", r"npm_[A-Za-z0-9]{36}", has_checksum),
    _token(
        "pypi_token",
        "PyPI token",
        "pypi-AgE",
        r"pypi-AgE(?:IcHlwaS5vcmc|NdGVzdC5weXBp)[\w-]{50,250}",
    ),
    _token("rubygems_key", "RubyGems key", "rubygems_", r"rubygems_[a-f0-9]{48}"),
    _token("nuget_key", "NuGet key", "oy2", r"oy2[a-z0-9]{43}", is_strong),
    _token("crates_token", "crates.io token", "cio", r"cio[A-Za-z0-9]{32}", is_strong),
    _token(
        "docker_token",
        "Docker token",
        "dckr_pat_ dckr_oat_",
        r"dckr_[po]at_[A-Za-z0-9_-]{24,40}",
    ),
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
        before=14,
    ),
    _token("pulumi_token", "Pulumi token", "pul-", r"pul-[a-f0-9]{40}"),
    _token(
        "heroku_key",
        "Heroku key",
        "HRKU-",
        rf"HRKU-(?:[A-Za-z0-9_-]{{58,64}}|{_UUID})",
        lambda value: is_random(value) or _ends_in_uuid(value),
    ),
    _token(
        "fly_token", "Fly.io token", "fo1_ fm2_", r"fo1_[\w-]{43}|fm2_[A-Za-z0-9+/]{100,2000}=*"
    ),
    _token("netlify_token", "Netlify token", "nfp_", r"nfp_[A-Za-z0-9]{36,40}"),
    _token("render_key", "Render key", "rnd_", r"rnd_[A-Za-z0-9]{28,40}", is_strong),
    _token(
        "doppler_token",
        "Doppler token",
        "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.",
        r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}",
    ),
    _token(
        "tailscale_key",
        "Tailscale key",
        "tskey-",
        r"tskey-(?:(?:auth|api|client|webhook|scim)-)?[A-Za-z0-9]{6,24}-[A-Za-z0-9]{16,48}",
    ),
    _token("atlassian_token", "Atlassian token", "ATATT3", r"ATATT3[\w=-]{180,220}"),
    _token("linear_key", "Linear key", "lin_api_", r"lin_api_[A-Za-z0-9]{40}"),
    _token("notion_token", "Notion token", "ntn_ secret_", r"ntn_\w{46}|secret_[A-Za-z0-9]{43}"),
    _token("figma_token", "Figma token", "figd_ figo_ figu_", r"fig[dou]_[A-Za-z0-9_-]{40,48}"),
    _token("airtable_token", "Airtable token", "pat", r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    _token(
        "hubspot_token",
        "HubSpot token",
        "pat-na pat-eu",
        rf"pat-(?:na|eu)\d-{_UUID}",
        _ends_in_uuid,
    ),
    _token("contentful_token", "Contentful token", "CFPAT-", r"CFPAT-[\w-]{43}"),
    _token("postman_key", "Postman key", "PMAK-", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    _token(
        "grafana_token",
        "Grafana token",
        "glsa_",
        r"glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}",
        has_hex_checksum,
    ),
    _token(
        "grafana_cloud_token", "Grafana Cloud token", "glc_eyJ", r"glc_eyJ[A-Za-z0-9+/]{30,400}=*"
    ),
    _token(
        "sentry_token",
        "Sentry token",
        "sntrys_ sntryu_",
        r"sntrys_eyJ[A-Za-z0-9+/_=-]{40,400}|sntryu_[a-f0-9]{64}",
    ),
    _token("posthog_key", "PostHog key", "phx_ phs_", r"ph[xs]_[A-Za-z0-9]{32,64}"),
    _token("sonar_token", "Sonar token", "squ_ sqp_ sqa_", r"sq[upa]_[a-f0-9]{40}"),
    _token("dynatrace_token", "Dynatrace token", "dt0c01.", r"dt0c01\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    _token("newrelic_key", "New Relic key", "NRAK-", r"NRAK-[A-Z0-9]{27}"),
    _token(
        "supabase_token",
        "Supabase token",
        "sbp_ sb_secret_",
        r"sbp_(?:v0_)?[a-f0-9]{40}|sb_secret_[A-Za-z0-9_-]{22,31}(?:_[A-Za-z0-9_-]{8})?",
    ),
    _token(
        "planetscale_token",
        "PlanetScale token",
        "pscale_",
        r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{32,64}",
    ),
    _token(
        "mapbox_token",
        "Mapbox secret token",
        "sk.eyJ",
        r"sk\.eyJ[A-Za-z0-9_-]{20,300}\.[A-Za-z0-9_-]{22}",
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
        r"eyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,8000}\.[A-Za-z0-9_-]{20,2000}",
        is_jwt,
    ),
    _token(
        "encoded_logins",
        "logins of docker in base64",
        "eyJhdXRocyI6",
        r"eyJhdXRocyI6[A-Za-z0-9+/]{40,8000}={0,2}",
    ),
    _token(
        "encoded_private_key",
        "private key in base64",
        "LS0tLS1CRUdJTi",
        r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{60,20000}={0,2}",
        holds_key,
    ),
)
