"""A harness in ten lines."""

from kbproc.client import Kbproc

with Kbproc("notes") as kb:
    kb.doc.create(title="Tides", text="High tide is at noon. Low tide is at six.")
    for hit in kb.search("when is high tide", limit=3).data["results"]:
        print(hit["score"], hit["source"]["cite"], hit["snippet"])
    for event in kb.chat.stream("When is high tide?"):
        print(event.get("delta", ""), end="", flush=True)
    print()
