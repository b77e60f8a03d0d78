"""The check for secrets names each text that holds one, without the secret, and how it goes."""

from __future__ import annotations

from kbproc.knowledge.app.health.secrets import secrets
from tests.kit import knowledge
from tests.kit.talk import Session

TOKEN = "ghp_" + "R8k2Lm9Qw4Zx7Vb1Nc5Td3Fg6Hj0Ps8Ya2Ue"


def test_a_store_without_secrets_passes(session: Session) -> None:
    knowledge.entry(session.store, "Ports", "The port is 8700.")
    finding = secrets(session.store)
    assert (finding.name, finding.status, finding.message) == (
        "secrets",
        "pass",
        "no text holds a secret of a known shape",
    )


def test_texts_and_titles_with_secrets_are_named_redacted(session: Session) -> None:
    knowledge.entry(session.store, "Ports", "The port is 8700.")
    knowledge.entry(session.store, "Deploy", f"Use {TOKEN} to deploy.")
    finding = secrets(session.store)
    assert finding.status == "warn"
    assert finding.message.startswith("1 document holds secrets: 2 “Deploy” (")
    knowledge.entry(session.store, f"Key {TOKEN}", "Deploys.")
    finding = secrets(session.store)
    assert finding.message.startswith("2 documents hold secrets: 2 “Deploy” (")
    assert "; 3 “Key " in finding.message
    assert finding.hint is not None and "2,3" in finding.hint
    assert TOKEN not in finding.message + finding.hint
