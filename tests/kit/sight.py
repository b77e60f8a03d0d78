"""A store whose answers repeat a document, an entry and a note, which not everybody may see."""

from __future__ import annotations

from kbproc.engine.models.answering.interface import (
    AnswerOutcome,
    AnswerPart,
    Conversation,
    Prompt,
)
from tests.kit.talk import Session

QUESTION = "What do the porter, the entry and the note say of the cellar?"
# Words to look for, the text that holds each, and the scopes of which any one shows it.
WORDS = {
    "xylophone": ("a document", {"doc:read", "chunk:read", "admin"}),
    "quarantine": ("an entry", {"knowledge:read", "admin"}),
    "marmalade": ("a note", {"note:read", "admin"}),
}


def fill(session: Session) -> None:
    """Creates an agent whose answers repeat a document, an entry and a note of its own."""
    session.data("kb.create", slug="secrets")
    session.data("agent.create", slug="alpha")
    session.data(
        "doc.create",
        title="Porter",
        text="The porter keeps the xylophone in the cellar.",
        kb="secrets",
    )
    entry = {"title": "Cellar entry", "body": "The entry says quarantine of the cellar."}
    session.data("knowledge.store", **entry, kb="secrets")
    text = "# Cellar note\n\nThe note says marmalade is in the cellar.\n"
    session.data("note.put", agent="alpha", slug="cellar", text=text)
    session.embedded()
    alpha = session.another("alpha", named=True)
    alpha.data("chat", question=QUESTION, references="full", client_token="asked")


class Repeats:
    """An answerer that repeats all passages of its prompt without a citation."""

    name, model = "repeats", "toy"

    def prompt_tokens(self, prompt: Prompt) -> int:
        return 1

    def answer(self, prompt: Prompt, talk: Conversation) -> AnswerOutcome:
        earlier = " ".join(turn.answer for turn in prompt.earlier)
        passages_text = " ".join(passage.text for passage in prompt.passages)
        talk.say([AnswerPart(text=f"{earlier} {passages_text}", passages=None)])
        return AnswerOutcome(status="finished")

    def close(self) -> None:
        pass
