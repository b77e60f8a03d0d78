"""Files within files, such as attachments: documents of their own, linked to what holds them."""

from __future__ import annotations

from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from kbproc.engine.sources.parse import ocr
from tests.kit import chats
from tests.kit.office import archive
from tests.kit.pdfs import pdf, stream, text_page
from tests.kit.talk import Session

REPORT = pdf(text_page(["The crane was inspected in March."]))


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


def mail(body: str, **attachments: bytes) -> bytes:
    message = EmailMessage()
    message["Subject"], message["From"] = "Inspection", "Ann Lee <ann@a.org>"
    message["Date"] = "Tue, 05 Mar 2024 10:00:00 +0100"
    message.set_content(body)
    for name, data in attachments.items():
        message.add_attachment(
            data, maintype="application", subtype="x", filename=name.replace("_", ".")
        )
    return message.as_bytes()


def ingest(session: Session, **params: Any) -> dict[str, Any]:
    data: dict[str, Any] = session.data("doc.ingest", paths=["docs"], **params)
    return data


def documents(session: Session) -> dict[str, dict[str, Any]]:
    """The documents by their paths, relative to docs/."""
    rows = session.data("doc.list", limit=1000)
    return {row["source"]["path"].partition("/docs/")[2]: row for row in rows}


def test_attachments_become_documents_that_name_their_mail(session: Session, docs: Path) -> None:
    (docs / "a.eml").write_bytes(
        mail("The report is attached.", report_pdf=REPORT, photo_bin=b"\0\1\2")
    )
    answer = ingest(session)
    assert (answer["added"], answer["failed"], answer["unread"]) == (2, 0, {"attachments": 1})
    rows = documents(session)
    assert {name: row["type"] for name, row in rows.items()} == {
        "a.eml": "mail",
        "a.eml!/report.pdf": "pdf",
    }
    assert rows["a.eml!/report.pdf"]["metadata"] == {"part_of": str(docs / "a.eml")}
    (hit,) = session.data("search", query="crane inspected", mode="fts", limit=1)["results"]
    assert hit["source"]["cite"] == "report.pdf, p. 1"
    (hit,) = session.data("search", query="report is attached", mode="fts", limit=1)["results"]
    assert hit["source"]["cite"] == "Inspection, § Ann Lee, 2024-03-05"
    assert ingest(session)["unchanged"] == 1
    assert session.data("doc.reparse", ids=[row["id"] for row in rows.values()])["updated"] == 0


def test_a_changed_mail_changes_only_what_changed(session: Session, docs: Path) -> None:
    path = docs / "a.eml"
    path.write_bytes(mail("One.", report_pdf=REPORT, notes_md=b"# Tides\n\nHigh at noon."))
    ingest(session)
    before = documents(session)
    path.write_bytes(mail("Two.", report_pdf=REPORT, notes_md=b"# Tides\n\nHigh at six."))
    answer = ingest(session)
    assert (answer["updated"], answer["unchanged"], answer["failed"]) == (2, 1, 0)
    after = documents(session)
    assert {name: row["id"] for name, row in after.items()} == {
        name: row["id"] for name, row in before.items()
    }
    assert [after[name]["revision"] for name in sorted(after)] == [2, 2, 1]


def test_what_a_mail_no_longer_holds_stays_until_it_is_pruned(session: Session, docs: Path) -> None:
    path = docs / "a.eml"
    path.write_bytes(mail("One.", report_pdf=REPORT, notes_md=b"# Tides"))
    ingest(session)
    path.write_bytes(mail("Two.", report_pdf=REPORT))
    (failure,) = ingest(session)["failures"]
    assert "a.eml no longer holds notes.md" in failure["message"]
    assert set(documents(session)) == {"a.eml", "a.eml!/report.pdf", "a.eml!/notes.md"}
    assert ingest(session)["gone"] == 1
    plan = session.error("doc.ingest", paths=["docs"], prune=True)["plan"]
    answer = ingest(session, prune=True, confirm=plan["plan_hash"])
    assert (answer["removed"], answer["failed"]) == (1, 0)
    assert set(documents(session)) == {"a.eml", "a.eml!/report.pdf"}


def test_a_mail_that_moves_or_goes_takes_its_attachments_along(
    session: Session, docs: Path
) -> None:
    (docs / "a.eml").write_bytes(mail("One.", report_pdf=REPORT))
    ingest(session)
    before = documents(session)
    (docs / "a.eml").rename(docs / "b.eml")
    assert ingest(session)["moved"] == 2
    after = documents(session)
    assert after["b.eml!/report.pdf"]["id"] == before["a.eml!/report.pdf"]["id"]
    assert after["b.eml!/report.pdf"]["metadata"] == {"part_of": str(docs / "b.eml")}
    (docs / "b.eml").unlink()
    assert ingest(session)["gone"] == 2


def test_a_bad_attachment_fails_alone(session: Session, docs: Path) -> None:
    (docs / "a.eml").write_bytes(mail("One.", bad_pdf=b"%PDF-1.4\nno", good_md=b"# Good"))
    (failure,) = ingest(session)["failures"]
    assert failure["path"] == str(docs / "a.eml!/bad.pdf")
    assert set(documents(session)) == {"a.eml", "a.eml!/good.md"}


def test_mails_within_mails_are_read_to_a_depth(session: Session, docs: Path) -> None:
    data = b"# Deep"
    for number in range(6):
        name = "x_md" if number == 0 else "m_eml"
        data = mail(f"Level {number}.", **{name: data})
    (docs / "a.eml").write_bytes(data)
    answer = ingest(session)
    assert answer["added"] == 5
    assert answer["unread"] == {"attachments": 1}
    assert f"a.eml{'!/m.eml' * 4}" in documents(session)


def test_a_folder_may_have_such_a_name(session: Session, docs: Path) -> None:
    (docs / "a!").mkdir()
    (docs / "a!" / "b.md").write_text("# B")
    ingest(session)
    (docs / "a!" / "b.md").unlink()
    assert ingest(session)["gone"] == 1


def test_archives_are_read_where_they_are_asked_for(session: Session, docs: Path) -> None:
    inner = archive({"deep.md": "# Deep"})
    whole = archive({"a.md": "# Alpha", "b/report.pdf": REPORT, "c.zip": inner, "d.bin": b"\0\1"})
    (docs / "a.zip").write_bytes(whole)
    answer = ingest(session)
    assert (answer["unsupported"], answer["unsupported_kinds"]) == (1, {"a ZIP archive": 1})
    error = session.error("doc.ingest", paths=["docs/a.zip"])
    assert "No parser reads a.zip: it is a ZIP archive." in str(error)
    answer = ingest(session, archives=True)
    assert (answer["added"], answer["unread"]) == (5, {"embedded_files": 1})
    rows = documents(session)
    assert {name: row["type"] for name, row in rows.items()} == {
        "a.zip": "archive",
        "a.zip!/a.md": "markdown",
        "a.zip!/b/report.pdf": "pdf",
        "a.zip!/c.zip": "archive",
        "a.zip!/c.zip!/deep.md": "markdown",
    }
    assert rows["a.zip!/c.zip!/deep.md"]["metadata"]["part_of"] == str(docs / "a.zip!/c.zip")
    (docs / "a.zip").write_bytes(archive({"a.md": "# Alpha two"}))
    answer = ingest(session)  # an archive that was read once is read again
    assert (answer["updated"], answer["failed"]) == (2, 3)


def test_a_plan_tells_the_files_of_an_archive(session: Session, docs: Path) -> None:
    (docs / "a.zip").write_bytes(archive({"a.md": "# Alpha"}))
    meta = session.ask("doc.ingest", paths=["docs"], archives=True, dry_run=True)["result"]["meta"]
    assert meta["plan"]["counts"]["added"] == 2
    assert documents(session) == {}


def test_a_name_that_lies_is_told(session: Session, docs: Path) -> None:
    (docs / "a.docx").write_bytes(REPORT)
    reply = session.ask("doc.ingest", paths=["docs"])["result"]
    assert reply["data"]["notes"] == ["a.docx is a PDF, and was read as that."]
    assert reply["meta"]["hint"].startswith("a.docx is a PDF")
    assert documents(session)["a.docx"]["type"] == "pdf"


SCAN = Path(__file__).parents[1] / "sources" / "parse" / "corpus" / "scan.jpg"


@pytest.mark.skipif(ocr.program() is None, reason="tesseract is not installed")
def test_a_scan_is_read_again_where_its_text_is_to_be_recognised(
    session: Session, docs: Path
) -> None:
    size = "/Type /XObject /Subtype /Image /Width 480 /Height 130"
    entries = f"{size} /ColorSpace /DeviceGray /BitsPerComponent 8 /Filter /DCTDecode"
    page = b"q 480 0 0 130 50 600 cm /I0 Do Q"
    scan = stream(entries, SCAN.read_bytes())
    data = pdf(text_page(["Words."]), page, resources="/XObject << /I0 9 0 R >>", extra=[scan])
    (docs / "a.pdf").write_bytes(data)
    (docs / "b.jpg").write_bytes(SCAN.read_bytes())
    answer = ingest(session)
    assert (answer["added"], answer["unread"]) == (1, {"pages_without_text": 1})
    assert "ocr" not in documents(session)["a.pdf"]["source"]
    answer = ingest(session, ocr=True)
    assert (answer["added"], answer["updated"], answer["unread"]) == (1, 1, {})
    rows = documents(session)
    assert rows["a.pdf"]["source"]["ocr"] is rows["b.jpg"]["source"]["ocr"] is True
    assert rows["b.jpg"]["metadata"]["ocr_languages"] == "eng"
    hits = session.data("search", query="eleven tons of timber", mode="fts")["results"]
    assert sorted(hit["source"]["cite"] for hit in hits) == ["a.pdf, p. 2", "b.jpg, p. 1"]
    assert ingest(session, ocr=True)["unchanged"] == 2


@pytest.mark.skipif(ocr.program() is None, reason="tesseract is not installed")
def test_a_language_that_is_not_installed_is_refused(session: Session, docs: Path) -> None:
    session.store.settings["ocr_languages"] = "eng+xyz"
    error = session.error("doc.ingest", paths=["docs"], ocr=True)
    assert "has no language 'xyz'. store.toml asks for it" in error["message"]
    session.store.settings["ocr_languages"] = ["eng"]
    (docs / "b.jpg").write_bytes(SCAN.read_bytes())
    assert session.data("doc.ingest", paths=["docs"], ocr=True)["added"] == 1
    assert documents(session)["b.jpg"]["metadata"]["ocr_languages"] == "eng"
    error = session.error("doc.ingest", paths=["docs"], ocr=True, ocr_languages=["eng", "xyz"])
    assert error["field"] == "$.params.ocr_languages[1]"
    assert "eng" in error["valid_values"]
    assert "tesseract-ocr-xyz" in error["hint"]


def test_a_check_looks_at_the_files_that_hold_others(session: Session, docs: Path) -> None:
    """Attachments have no files of their own, and a conversation is stored in another shape."""

    def states() -> dict[str, str]:
        stale = session.data("kb.check", slug="default")["stale_files"]
        return {file["path"].partition("/docs/")[2]: file["state"] for file in stale}

    (docs / "a.eml").write_bytes(mail("The report is attached.", report_pdf=REPORT))
    (docs / "b.md").write_text("# B\n\nWords.\n")
    (docs / "log.jsonl").write_bytes(chats.claude_code())
    ingest(session)
    assert states() == {}
    (docs / "b.md").write_text("# B\n\nOther.\n")
    (docs / "log.jsonl").write_bytes(chats.claude_code() + b"\n")
    assert states() == {"b.md": "changed", "log.jsonl": "changed"}
    (docs / "a.eml").unlink()
    assert states() | {"b.md": "", "log.jsonl": ""} == {
        "a.eml": "gone",
        "a.eml!/report.pdf": "gone",
        "b.md": "",
        "log.jsonl": "",
    }
