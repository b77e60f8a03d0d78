"""Which addresses belong to the public internet.

Owns: the blocks of IPv4 and IPv6 addresses that do not, and IPv4 addresses within IPv6 ones.
Refuses to know: names, and connections.

The blocks are those of IANA's registries of special-purpose addresses (RFC 6890, RFC 8190), and of
multicast and reserved addresses. Python's own table is not asked: `ipaddress.is_global` differs
from release to release (CVE-2024-4032), and does not know the newer blocks.
"""

from __future__ import annotations

import ipaddress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple


class Block(NamedTuple):
    """Addresses that lead to no public machine, and who says so."""

    network: IPv4Network | IPv6Network
    what: str
    source: str


def _block(network: str, what: str, source: str) -> Block:
    return Block(ipaddress.ip_network(network), what, source)


# IANA calls two addresses in 192.0.0.0/24 global: anycast to whatever relay is near, no web page.
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

# Global unicast addresses are given out of 2000::/3 only (RFC 3587); blocks outside it are listed
# with their sources all the same. IANA calls some blocks in 2001::/23 global: those of anycast and
# of identifiers, which lead to no web page. Teredo, which wraps two IPv4 addresses, lies there too.
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
    """IPv6 addresses that hold an IPv4 address: they lead where that one leads.

    `shift`: how many bits follow it.
    """

    network: IPv6Network
    what: str
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
    """Whether it leads to the public internet; raises ValueError for what is no address."""
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
