"""What a search is restricted to.

Owns: the restriction that full text and vectors both keep to.
Refuses to know: how either of them stores and searches.
"""

from __future__ import annotations

from msgspec import Struct

from kbproc.views.catalog.rows import Ids


class Restriction(Struct, frozen=True):
    """What a search may see; None leaves that side open.

    `kbs`: only what is labelled so, `without`: not so; see filters. `documents`: only
    these, `exclude`: not these; both sorted.
    """

    kbs: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    documents: Ids | None = None
    exclude: Ids | None = None
