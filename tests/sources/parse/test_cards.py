"""Events, tasks and cards are read with their folded and quoted lines put together."""

from __future__ import annotations

import pytest

from kbproc.engine.sources.parse.formats import detect, parse


def shown(source: bytes, name: str) -> list[tuple[str | None, str]]:
    kind = detect(name, source)
    assert kind == "text"
    return [(block.section, block.text) for block in parse(source, kind, name).blocks]


EVENT = (
    "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nX-WR-CALNAME:Harbour\r\nBEGIN:VTIMEZONE\r\nTZID:Europe/Berlin"
    "\r\nBEGIN:STANDARD\r\nDTSTART:19701025T030000\r\nEND:STANDARD\r\nEND:VTIMEZONE\r\n"
    "BEGIN:VEVENT\r\nUID:7\r\nDTSTART;TZID=Europe/Berlin:20240305T140000\r\n"
    "DTEND:20240305T150000Z\r\nSUMMARY:Dredg\r\n ing of the Gr\r\n\tößenkanal\\, north\r\n"
    "DESCRIPTION:Bring:\\n- boots\\; and\\n- 3\\,5 m rope\r\nBEGIN:VALARM\r\n"
    "DESCRIPTION:In an hour\r\nEND:VALARM\r\n"
    'ATTENDEE;ROLE=CHAIR;CN="Lee, Ann":mailto:ann@a.org\r\nEXDATE:20240306,20240307\r\n'
    "ATTACH;ENCODING=BASE64;VALUE=BINARY:QUJD\r\nEND:VEVENT\r\n"
    "BEGIN:VTODO\r\nSUMMARY:Pay dues\r\nEND:VTODO\r\nEND:VCALENDAR\r\n"
)


def test_an_event_is_read_as_a_calendar_shows_it() -> None:
    summary = "Dredging of the Größenkanal, north"
    assert shown(EVENT.encode(), "a.ics") == [
        ("Harbour", "X-wr-calname: Harbour"),
        (
            summary,
            "Dtstart: 2024-03-05 14:00 (Europe/Berlin)\nDtend: 2024-03-05 15:00 UTC\n"
            f"Summary: {summary}\nDescription: Bring:\n- boots; and\n- 3,5 m rope\n"
            "Description: In an hour\nAttendee: Lee, Ann (ann@a.org)\n"
            "Exdate: 2024-03-06, 2024-03-07",
        ),
        ("Pay dues", "Summary: Pay dues"),
    ]
    parsed = parse(EVENT.encode(), "text", "a.ics")
    assert (parsed.title, parsed.unread) == ("Harbour", {"embedded_files": 1})


def test_a_fold_within_a_character_is_mended() -> None:
    word = "Größe".encode()
    folded = b"SUMMARY:" + word[:3] + b"\r\n " + word[3:] + b" of the quay"
    source = b"BEGIN:VEVENT\n" + folded + b"\nEND:VEVENT"
    assert shown(source, "a.ics") == [("Größe of the quay", "Summary: Größe of the quay")]


def test_cards_of_each_version_are_read() -> None:
    old = (
        "BEGIN:VCARD\nVERSION:2.1\nN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:M=C3=BCller;J=C3=\n"
        "=BCrgen;;Dr.;\nFN;QUOTED-PRINTABLE;CHARSET=ISO-8859-1:J=FCrgen M=FCller\n"
        "TEL;WORK;VOICE:+49 40 1\nPHOTO;ENCODING=BASE64;JPEG:QUJD\n REVG\nEND:VCARD\n"
    )
    new = (
        "BEGIN:VCARD\nVERSION:4.0\nFN:Ann Lee\nORG:Port\\, Harbour;Pilots\n"
        'EMAIL;TYPE="work":ann@a.org\nitem1.URL:https://a.org/x?a=1\nitem1.X-ABLabel:Blog\n'
        "NOTE:Speaks Plattd\n eutsch\nPHOTO:data:image/png;base64,QUJD\n"
        "ADR;TYPE=home:;;1 Quay St;Hull;;HU1;UK\nEND:VCARD\n"
    )
    assert shown((old + new).encode(), "a.vcf") == [
        (
            "Jürgen Müller",
            "N: Müller Jürgen Dr.\nFn: Jürgen Müller\nTel (work, voice): +49 40 1",
        ),
        (
            "Ann Lee",
            "Fn: Ann Lee\nOrg: Port, Harbour Pilots\nEmail (work): ann@a.org\n"
            "Url (Blog): https://a.org/x?a=1\nNote: Speaks Plattdeutsch\n"
            "Adr (home): 1 Quay St Hull HU1 UK",
        ),
    ]
    assert parse((old + new).encode(), "text", "a.vcf").unread == {"pictures": 2}
    assert parse(new.encode(), "text", "a.vcf").title == "Ann Lee"


@pytest.mark.parametrize("source", [b"", b"just words", b"NOTE: words\n\nmore"])
def test_a_file_without_components_is_read_as_text(source: bytes) -> None:
    assert "\n\n".join(text for _, text in shown(source, "a.ics")) == source.decode()


def test_a_damaged_line_is_kept() -> None:
    source = b"BEGIN:VEVENT\nSUMMARY:One\nno property here\nDTSTART:soon\n"
    assert shown(source, "a.ics") == [("One", "Summary: One\nno property here\nDtstart: soon")]
