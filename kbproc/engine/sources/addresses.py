"""Tells addresses of the public internet from private and special ones.

The tables list the blocks of IPv4 and IPv6 addresses that are not public, and the IPv6 blocks that
hold IPv4 addresses. Their source is IANA's registries of special-purpose addresses (RFC 6890,
RFC 8190), with multicast and reserved addresses added. Python's own table is not used, because
`ipaddress.is_global` differs from release to release (CVE-2024-4032) and lacks the newer blocks.
"""

from __future__ import annotations

import ipaddress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple


class AddressBlock(NamedTuple):
    """A block of addresses that lead to no public machine, and the document that says so."""

    network: IPv4Network | IPv6Network
    purpose: str
    source: str


def _block(network: str, purpose: str, source: str) -> AddressBlock:
    return AddressBlock(ipaddress.ip_network(network), purpose, source)


# IANA calls two addresses in 192.0.0.0/24 global, but they are anycast relays without web pages.
BLOCKS_V4 = (
    _block("0.0.0.0/8", "this network", "RFC 791"),
    _block("10.0.0.0/8", "private use", "RFC 1918"),
    _block("100.64.0.0/10", "shared address space", "RFC 6598"),
    _block("127.0.0.0/8", "loopback", "RFC 1122"),
    _block("168.63.129.16/32", "a cloud's host, seen from its machines", "Microsoft Azure"),
    _block("169.254.0.0/16", "link local", "RFC 3927"),
    _block("172.16.0.0/12", "private use", "RFC 1918"),
    _block("192.0.0.0/24", "IETF protocol assignments", "RFC 6890"),
    _block("192.0.2.0/24", "documentation", "RFC 5737"),
    _block("192.88.99.0/24", "6to4 relay anycast", "RFC 7526"),
    _block("192.168.0.0/16", "private use", "RFC 1918"),
    _block("198.18.0.0/15", "benchmarking", "RFC 2544"),
    _block("198.51.100.0/24", "documentation", "RFC 5737"),
    _block("203.0.113.0/24", "documentation", "RFC 5737"),
    _block("224.0.0.0/4", "multicast", "RFC 5771"),
    _block("240.0.0.0/4", "reserved, limited broadcast", "RFC 1112"),
)

# IANA assigns global unicast addresses from 2000::/3 only (RFC 3587); the table lists blocks
# outside it too, so that their sources are on record. IANA calls some blocks in 2001::/23 global:
# anycast and identifiers, which lead to no web page. Teredo, which wraps two IPv4 addresses, has
# a block of that range.
GLOBAL_UNICAST = IPv6Network("2000::/3")
BLOCKS_V6 = (
    _block("::/128", "unspecified", "RFC 4291"),
    _block("::1/128", "loopback", "RFC 4291"),
    _block("64:ff9b:1::/48", "local-use translation", "RFC 8215"),
    _block("100::/64", "discard only", "RFC 6666"),
    _block("100:0:0:1::/64", "dummy prefix", "RFC 9780"),
    _block("2001::/32", "Teredo", "RFC 4380"),
    _block("2001::/23", "IETF protocol assignments", "RFC 2928"),
    _block("2001:db8::/32", "documentation", "RFC 3849"),
    _block("3fff::/20", "documentation", "RFC 9637"),
    _block("5f00::/16", "segment routing", "RFC 9602"),
    _block("fc00::/7", "unique local", "RFC 4193"),
    _block("fe80::/10", "link local", "RFC 4291"),
    _block("fec0::/10", "site local", "RFC 3879"),
    _block("ff00::/8", "multicast", "RFC 4291"),
)


class Wrapping(NamedTuple):
    """A block of IPv6 addresses that hold an IPv4 address, and lead where that address leads.

    `shift` is the number of bits behind the IPv4 address.
    """

    network: IPv6Network
    purpose: str
    source: str
    shift: int = 0


WRAPPINGS = (
    Wrapping(IPv6Network("::/96"), "IPv4-compatible", "RFC 4291"),
    Wrapping(IPv6Network("::ffff:0:0/96"), "IPv4-mapped", "RFC 4291"),
    Wrapping(IPv6Network("::ffff:0:0:0/96"), "IPv4-translated", "RFC 2765"),
    Wrapping(IPv6Network("64:ff9b::/96"), "NAT64", "RFC 6052"),
    Wrapping(IPv6Network("2002::/16"), "6to4", "RFC 3056", 80),
)


def is_public(address: str) -> bool:
    """Returns True for an address of the public internet. Raises ValueError for a malformed one."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    return _is_public_v4(ip) if isinstance(ip, IPv4Address) else _is_public_v6(ip)


def _is_public_v4(ip: IPv4Address) -> bool:
    return not any(ip in block.network for block in BLOCKS_V4)


def _is_public_v6(ip: IPv6Address) -> bool:
    if any(ip in block.network for block in BLOCKS_V6):
        return False
    for wrapping in WRAPPINGS:
        if ip in wrapping.network:
            return _is_public_v4(IPv4Address(int(ip) >> wrapping.shift & 0xFFFFFFFF))
    return ip in GLOBAL_UNICAST
