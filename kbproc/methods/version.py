"""version: tell the versions of kbproc, the protocol, Python and the libraries."""

# Annotations are values here: msgspec compiles each that is a text, at every start.

from msgspec import Struct

from kbproc import PROTOCOL, SCHEMA_VERSION
from kbproc.base.params import ReadParams
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


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
    summary="List the versions of kbproc, protocol, Python and libraries.",
    when_to_use="For a bug report, or to check what a harness talks to.",
    scope="store:read",
    needs_store=False,
    examples=[Example(params={}, what="all versions")],
)
def version(call: Call, params: Version) -> Reply:
    import sys

    from kbproc import __version__
    from kbproc.base.libraries import library_versions

    versions = {"python": sys.version.split()[0], **library_versions()}
    shown_versions = call.host.versions(versions)
    data = Versions(
        kbproc=__version__,
        protocol=PROTOCOL,
        schema=SCHEMA_VERSION,
        python=shown_versions["python"],
        libraries={name: value for name, value in shown_versions.items() if name != "python"},
    )
    return Reply(data=data)
