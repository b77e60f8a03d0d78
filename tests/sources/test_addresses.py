"""Every block of addresses that is not public, by its edges. Nothing is sent."""

from __future__ import annotations

import ipaddress

import pytest

from kbproc.engine.sources import addresses
from kbproc.engine.sources.addresses import is_public

# First and last address of each block, from IANA's registries; written out, not computed.
EDGES = {
    "0.0.0.0/8": ("0.0.0.0", "0.255.255.255"),
    "10.0.0.0/8": ("10.0.0.0", "10.255.255.255"),
    "100.64.0.0/10": ("100.64.0.0", "100.127.255.255"),
    "127.0.0.0/8": ("127.0.0.0", "127.255.255.255"),
    "168.63.129.16/32": ("168.63.129.16", "168.63.129.16"),
    "169.254.0.0/16": ("169.254.0.0", "169.254.255.255"),
    "172.16.0.0/12": ("172.16.0.0", "172.31.255.255"),
    "192.0.0.0/24": ("192.0.0.0", "192.0.0.255"),
    "192.0.2.0/24": ("192.0.2.0", "192.0.2.255"),
    "192.88.99.0/24": ("192.88.99.0", "192.88.99.255"),
    "192.168.0.0/16": ("192.168.0.0", "192.168.255.255"),
    "198.18.0.0/15": ("198.18.0.0", "198.19.255.255"),
    "198.51.100.0/24": ("198.51.100.0", "198.51.100.255"),
    "203.0.113.0/24": ("203.0.113.0", "203.0.113.255"),
    "224.0.0.0/4": ("224.0.0.0", "239.255.255.255"),
    "240.0.0.0/4": ("240.0.0.0", "255.255.255.255"),
    "::/128": ("::", "::"),
    "::1/128": ("::1", "::1"),
    "64:ff9b:1::/48": ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"),
    "100::/64": ("100::", "100::ffff:ffff:ffff:ffff"),
    "100:0:0:1::/64": ("100:0:0:1::", "100::1:ffff:ffff:ffff:ffff"),
    "2001::/32": ("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff"),
    "2001::/23": ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
    "2001:db8::/32": ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
    "3fff::/20": ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
    "5f00::/16": ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    "fc00::/7": ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    "fe80::/10": ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    "fec0::/10": ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    "ff00::/8": ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
}

BLOCKS = {str(b.network): b for b in (*addresses.BLOCKS_V4, *addresses.BLOCKS_V6)}


def test_every_block_has_its_edges_here_and_its_source_there() -> None:
    assert BLOCKS.keys() == EDGES.keys()
    cloud = "168.63.129.16/32"
    assert all(b.source.startswith("RFC ") or n == cloud for n, b in BLOCKS.items())


@pytest.mark.parametrize("block", EDGES)
def test_a_block_from_edge_to_edge(block: str) -> None:
    first, last = map(ipaddress.ip_address, EDGES[block])
    within = BLOCKS[block].network
    assert first in within and last in within
    assert not is_public(str(first)) and not is_public(str(last))
    outside = [n for n in (int(first) - 1, int(last) + 1) if 0 <= n < 1 << first.max_prefixlen]
    assert not any(type(first)(n) in within for n in outside), "these are the edges"


@pytest.mark.parametrize(
    "address",
    [
        "1.0.0.0",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "168.63.129.15",
        "168.63.129.17",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.1.255",
        "192.0.3.0",
        "192.31.196.1",
        "192.52.193.1",
        "192.88.98.255",
        "192.88.100.0",
        "192.167.255.255",
        "192.169.0.0",
        "192.175.48.1",
        "198.17.255.255",
        "198.20.0.0",
        "198.51.99.255",
        "198.51.101.0",
        "203.0.112.255",
        "203.0.114.0",
        "223.255.255.255",
        "93.184.215.14",
        "2001:200::",
        "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:db9::",
        "2606:2800:21f:cb07:6820:80da:af6b:8b2c",
        "2620:4f:8000::1",
        "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "3fff:1000::",
    ],
)
def test_public_addresses_beside_the_blocks(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    ["1fff:ffff::1", "4000::1", "200::1", "5eff::1", "5f01::1", "64:ff9b:2::1", "fbff::1"],
)
def test_what_was_never_given_out_is_not_public(address: str) -> None:
    assert not is_public(address)


WRAPPED = {
    "compatible": "::{}",
    "mapped": "::ffff:{}",
    "translated": "::ffff:0:{}",
    "NAT64": "64:ff9b::{}",
}


@pytest.mark.parametrize("within", WRAPPED.values(), ids=WRAPPED)
def test_addresses_within_addresses(within: str) -> None:
    for block in addresses.BLOCKS_V4:
        for edge in EDGES[str(block.network)]:
            assert not is_public(within.format(edge)), edge
    assert is_public(within.format("93.184.215.14"))


def test_6to4_and_teredo() -> None:
    for block in addresses.BLOCKS_V4:
        for edge in EDGES[str(block.network)]:
            high, low = divmod(int(ipaddress.IPv4Address(edge)), 1 << 16)
            assert not is_public(f"2002:{high:x}:{low:x}::1"), edge
            assert not is_public(f"2001:0:{high:x}:{low:x}::1"), edge
            assert not is_public(f"2001:0:5db8:d70e:0:0:{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}"), edge
    assert is_public("2002:5db8:d70e::1")


def test_a_zone_changes_nothing() -> None:
    assert not is_public("fe80::1%eth0")
    assert not is_public("::ffff:127.0.0.1%1")


def test_what_is_no_address() -> None:
    with pytest.raises(ValueError, match="localhost"):
        is_public("localhost")
