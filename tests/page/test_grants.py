"""A page's requests are answered under its own address, from itself, with cookie and key."""

from __future__ import annotations

import pytest

from kbproc.surfaces.page.access import KEY, Access, Grant, PageRefusal
from tests.kit.fixed import FixedHost

# A fixed host's salts count up; a secret is two of them.
TOKEN = f"{1:032x}{2:032x}"
COOKIE, SECRET = f"{3:032x}{4:032x}", f"{5:032x}{6:032x}"


@pytest.fixture
def access() -> Access:
    return Access(FixedHost(), 8700)


def test_the_address_has_the_token_where_no_browser_sends_it(access: Access) -> None:
    assert access.url == "http://127.0.0.1:8700/"
    assert access.address == f"http://127.0.0.1:8700/#token={TOKEN}"
    assert not access.is_taken


@pytest.mark.parametrize("host", ["127.0.0.1:8700", "localhost:8700"])
def test_both_names_of_the_loopback_are_served(access: Access, host: str) -> None:
    access.check_host({"Host": host})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": ""},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:8701"},
        {"Host": "LOCALHOST:8700"},
    ],
)
def test_every_other_host_is_refused(access: Access, headers: dict[str, str]) -> None:
    with pytest.raises(PageRefusal) as refusal:
        access.check_host(headers)
    assert refusal.value.status == 421
    assert refusal.value.reason == "This page answers under its own address only."


@pytest.mark.parametrize(
    ("headers", "required", "reason"),
    [
        ({"Origin": "http://localhost:8700"}, True, None),
        ({}, False, None),
        ({"Sec-Fetch-Site": "none"}, False, None),
        ({}, True, "The request names no origin."),
        ({"Origin": "null"}, False, "The request comes from another page."),
        ({"Origin": "https://localhost:8700"}, True, "The request comes from another page."),
        ({"Origin": "http://127.0.0.1:8700"}, True, "The request comes from another page."),
        ({"Sec-Fetch-Site": "same-site"}, False, "The request comes from another page."),
        (
            {"Origin": "http://localhost:8700", "Sec-Fetch-Site": "cross-site"},
            True,
            "The request comes from another page.",
        ),
    ],
)
def test_a_request_comes_from_the_page_itself(
    access: Access, headers: dict[str, str], required: bool, reason: str | None
) -> None:
    headers = {"Host": "localhost:8700", **headers}
    if reason is None:
        access.check_origin(headers, required=required)
        return
    with pytest.raises(PageRefusal) as refusal:
        access.check_origin(headers, required=required)
    assert (refusal.value.status, refusal.value.reason) == (403, reason)


def test_the_token_is_exchanged_once_and_a_wrong_one_takes_nothing(access: Access) -> None:
    for token in ("", TOKEN[:-1], TOKEN + "0", "é"):
        with pytest.raises(PageRefusal) as refusal:
            access.exchange(token)
        assert refusal.value.status == 403
    assert not access.is_taken
    grant = access.exchange(TOKEN)
    assert grant == Grant(COOKIE, SECRET)
    assert access.is_taken
    with pytest.raises(PageRefusal):
        access.exchange(TOKEN)
    assert access.set_cookie(grant) == (f"kbproc-8700={COOKIE}; Path=/; HttpOnly; SameSite=Strict")


@pytest.mark.parametrize(
    ("cookie", "key", "is_answered"),
    [
        (f"kbproc-8700={COOKIE}", SECRET, True),
        (f"other=1;kbproc-8700={COOKIE} ; last", SECRET, True),
        (f"kbproc-8700={COOKIE}", COOKIE, False),
        (f"kbproc-8700={SECRET}", SECRET, False),
        (f"kbproc-8701={COOKIE}", SECRET, False),
        ("kbproc-8700=", SECRET, False),
        ("", "", False),
        ("é=ü", "é", False),
    ],
)
def test_data_needs_both_the_cookie_and_the_key(
    access: Access, cookie: str, key: str, is_answered: bool
) -> None:
    headers = {"Cookie": cookie, KEY: key}
    if is_answered:
        access.check_key(headers)
        return
    with pytest.raises(PageRefusal) as refusal:
        access.check_key(headers)
    assert refusal.value.status == 401
    with pytest.raises(PageRefusal):
        access.check_key({})
