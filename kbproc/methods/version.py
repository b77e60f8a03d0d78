"""version: tell the versions of kbproc, the protocol, Python and the libraries."""

from __future__ import annotations

from msgspec import Struct

from kbproc import PROTOCOL, SCHEMA_VERSION
from kbproc.base.params import ReadParams
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply


class Version(ReadParams, kw_only=True, frozen=True):
    pass


class Versions(Struct, kw_only=True, frozen=True):
    """`libraries`: name → version of what does the work."""

    kbproc: str
    protocol: str
    schema: int
    python: str
    libraries: dict[str, str]


@method(
    "version",
    params=Version,
    result=Versions,
    summary="Tell the versions of kbproc, the protocol, Python and the libraries.",
    when_to_use="For a bug report, or to check what a harness talks to.",
    scope="store:read",
    needs_store=False,
    examples=[Example(params={}, what="all versions")],
)
def version(call: Call, params: Version) -> Reply:
    import platform

    from kbproc import __version__
    from kbproc.library.health.doctor import library_versions

    found = {"python": platform.python_version(), **library_versions()}
    told = call.host.versions(found)
    data = Versions(
        kbproc=__version__,
        protocol=PROTOCOL,
        schema=SCHEMA_VERSION,
        python=told["python"],
        libraries={name: value for name, value in told.items() if name != "python"},
    )
    return Reply(data=data)
