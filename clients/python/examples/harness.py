"""The main work of a harness: reading a folder, searching, an answer as it comes, cancel, errors,
a server that is killed half-way, and a write that happens once all the same.
"""

import os
import signal
import sys

from kbproc.client import Cancelled, Failed, Kbproc, KbprocError, NeedsPerson, NotFound


def read(kb: Kbproc, folder: str) -> None:
    """Progress as it is made, then the counts."""
    stream = kb.doc.ingest.stream([folder])
    for event in stream:
        if event["type"] == "progress":
            print(f"  {event['current']}/{event['total']} {event['message']}")
    counts = stream.result().data
    print(f"read {counts['added']} files, {counts['failed']} failed")
    try:
        kb.doc.wait(timeout=120)  # until they are found by meaning, too
    except Failed as error:  # there is no model
        print(f"found by words alone: {error.message}")


def ask(kb: Kbproc, question: str) -> None:
    """The answer, piece by piece; with the references that it may cite."""
    stream = kb.chat.stream(question)
    for event in stream:
        if event["type"] == "references":
            print("sources:", ", ".join(one["cite"] for one in event["references"]))
        print(event.get("delta", ""), end="", flush=True)
    print(f"\nstatus: {stream.result().data['status']}")


def follow(kb: Kbproc) -> None:
    """Leaving the loop cancels the request; `cancel()` does, too, and its answer says so."""
    for event in kb.events.subscribe.stream(after_seq=0):
        if event["type"] == "item":
            print("first record:", event["item"]["method"])
            break
    stream = kb.events.subscribe.stream()
    stream.cancel()
    try:
        stream.result()
    except Cancelled as error:
        print("cancelled:", error.type)


def fail(kb: Kbproc) -> None:
    """An error has a class, a type, a hint, and the request that leads on, where there is one."""
    try:
        kb.kb.get("defualt")
    except NotFound as error:
        print(error.type, error.valid_values, error.hint)
        assert error.retry
        print("meant:", kb.call(error.retry["method"], error.retry["params"]).data["slug"])
    try:
        kb.doc.delete([1])
    except NeedsPerson as error:
        assert error.plan
        print("a person would have to approve:", error.plan["changes"][0])


def survive(kb: Kbproc) -> None:
    """The server is killed; the client starts another, and what was in flight goes on."""
    before = kb.pid
    assert before
    waiting = [kb.stream("doc.create", title=f"Note {n}", text=f"Number {n}.") for n in range(20)]
    os.kill(before, signal.SIGKILL)
    ids = {one.result().data["id"] for one in waiting}
    print(f"{len(ids)} notes written, {kb.restarts} restart")
    first = kb.doc.create(title="Once", text="Once.", client_token="my-own-token")
    again = kb.doc.create(title="Once", text="Once.", client_token="my-own-token")
    print("the same again:", first.data == again.data, again.meta["duplicate"])


def main(store: str, folder: str) -> int:
    try:
        with Kbproc(store, timeout=300) as kb:
            read(kb, folder)
            for hit in kb.search("restore a backup", limit=3).data["results"]:
                print(hit["score"], hit["source"]["cite"])
            ask(kb, "How is a backup restored?")
            follow(kb)
            fail(kb)
            survive(kb)
    except KbprocError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
