"""A model hub on the loopback, which answers as the real one does, and faults in its answers."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".onnx", ".onnx_data", ".bin")  # files that the hub keeps by Git LFS
TOKEN = "hf_of-the-tests"
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([0-9a-f]{40})/(.+)")
_INFO = re.compile(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?")


class Repository:
    """A repository: its revisions, and the files of each commit."""

    def __init__(self, folder: Path, *, licence: str | None = "mit") -> None:
        self.licence = licence
        self.commits: dict[str, dict[str, bytes]] = {}
        self.branches: dict[str, str] = {}
        self.access = "public"  # or: private, gated
        self.commit(folder)

    def commit(self, folder: Path, branch: str = "main") -> str:
        """Makes a commit of a folder's files; moves the branch to it."""
        paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        listing = repr([(name, sha256(data)) for name, data in files.items()]).encode()
        name = hashlib.sha1(listing).hexdigest()
        self.commits[name], self.branches[branch] = files, name
        return name

    @property
    def main(self) -> str:
        return self.branches["main"]


class Hub(http.server.ThreadingHTTPServer):
    """`requests`: method and path of each; `headers`: theirs.

    `cuts`: names of files after whose half a connection is cut, once for each. `lies`: files that
    come with other bytes. `refusals`: answers to the next requests, status and headers. `busy`:
    paths whose next request has to come again. `silent`: parts of paths whose requests get no
    answer. `renamed`: repositories that have another name by now. `vanished`: files that are
    listed, and are not there.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.ranges: list[str] = []
        self.cuts: list[str] = []
        self.lies: set[str] = set()
        self.refusals: list[tuple[int, dict[str, str]]] = []
        self.busy: list[str] = []
        self.silent: set[str] = set()
        self.renamed: dict[str, str] = {}
        self.vanished: set[str] = set()
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.cdn = f"http://localhost:{self.server_port}"  # large files come from another host

    def add(self, name: str, folder: Path, **options: Any) -> Repository:
        self.repositories[name] = Repository(folder, **options)
        return self.repositories[name]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores the error: the client has closed its connection."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def git_hash(data: bytes) -> str:
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.server, unquote(urlsplit(self.path).path)
        hub.requests.append(f"{self.command} {path}")
        hub.headers.append({name.lower(): value for name, value in self.headers.items()})
        if any(part in path for part in hub.silent):
            self.close_connection = True
        elif old := next((one for one in hub.renamed if f"/{one}" in path), None):
            place = path.replace(f"/{old}", f"/{hub.renamed[old]}")
            query = urlsplit(self.path).query
            self._send(307, b"", location=place + (f"?{query}" if query else ""))
        elif busy := next((one for one in hub.busy if one in path), None):
            hub.busy.remove(busy)
            self._send(429, b"{}", **{"retry-after": "3"})
        elif hub.refusals:
            status, headers = hub.refusals.pop(0)
            self._send(status, b"{}", **headers)
        elif match := _INFO.fullmatch(path):
            self._info(match[1], match[2])
        elif match := _RESOLVE.fullmatch(path):
            self._resolve(*match.groups())
        elif path.startswith("/cdn/"):
            self._large(path.removeprefix("/cdn/"))
        else:
            self._send(404, b"{}")

    def _repository(self, name: str) -> Repository | None:
        """Returns a repository that the request's token may see; else it answers."""
        repository = self.server.repositories.get(name)
        has_token = self.headers.get("authorization") == f"Bearer {TOKEN}"
        if repository is None or (repository.access == "private" and not has_token):
            message = {"x-error-code": "RepoNotFound", "x-error-message": "Repository not found"}
            self._send(404 if has_token else 401, b"{}", **message)
            return None
        if repository.access == "gated" and not has_token:
            self._send(403, b"{}", **{"x-error-code": "GatedRepo"})
            return None
        return repository

    def _info(self, name: str, revision: str | None) -> None:
        repository = self._repository(name)
        if repository is None:
            return
        revision = revision or "main"
        starts = [one for one in repository.commits if one.startswith(revision)]
        commit = repository.branches.get(revision) or next(iter(starts), None)
        if commit is None:
            self._send(404, b"{}", **{"x-error-code": "RevisionNotFound"})
            return
        siblings = [
            {
                "rfilename": file,
                "size": len(data),
                "blobId": git_hash(data),
                **(
                    {"lfs": {"sha256": sha256(data), "size": len(data), "pointerSize": 134}}
                    if file.endswith(LARGE)
                    else {}
                ),
            }
            for file, data in repository.commits[commit].items()
        ]
        card = {"license": repository.licence} if repository.licence else None
        info = {"id": name, "sha": commit, "siblings": siblings, "cardData": card, "tags": []}
        self._send(200, json.dumps(info).encode(), **{"content-type": "application/json"})

    def _resolve(self, name: str, commit: str, file: str) -> None:
        repository = self._repository(name)
        if repository is None:
            return
        data = repository.commits.get(commit, {}).get(file)
        if data is None or file in self.server.vanished:
            code = {"x-error-code": "EntryNotFound", "x-repo-commit": commit}
            self._send(404, b"", **code)
            return
        headers = {"x-repo-commit": commit, "accept-ranges": "bytes"}
        if file.endswith(LARGE):
            headers["x-linked-etag"], headers["x-linked-size"] = f'"{sha256(data)}"', str(len(data))
            headers["location"] = f"{self.server.cdn}/cdn/{name}/{commit}/{file}"
            self._send(302, b"", **headers)
            return
        self._send(200, self._of(file, data), etag=f'"{git_hash(data)}"', **headers)

    def _large(self, place: str) -> None:
        owner, name, commit, file = place.split("/", 3)
        data = self._of(file, self.server.repositories[f"{owner}/{name}"].commits[commit][file])
        span = self.headers.get("range")
        if span is None:
            self._send(200, data, cut=file in self.server.cuts and file)
            return
        self.server.ranges.append(span)
        first = int(span.removeprefix("bytes=").split("-")[0])
        part = {"content-range": f"bytes {first}-{len(data) - 1}/{len(data)}"}
        self._send(206, data[first:], cut=file in self.server.cuts and file, **part)

    def _of(self, file: str, data: bytes) -> bytes:
        return data[:-1] + bytes([data[-1] ^ 1]) if file in self.server.lies else data

    def _send(self, status: int, body: bytes, *, cut: str | bool = False, **headers: str) -> None:
        self.send_response_only(status)
        own = {"content-length": str(len(body)), "date": self.date_time_string()}
        for name, value in {**own, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if isinstance(cut, str):
            self.server.cuts.remove(cut)
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def hub() -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
