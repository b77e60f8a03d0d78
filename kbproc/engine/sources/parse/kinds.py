"""Tells what kind of file some bytes are by how they begin, whatever their name says."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of file in words, "a PDF", and the document type that reads it, if there is one."""

    words: str
    type: str | None = None


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
OLDER_OFFICE = Kind("an Office file of the older format")
# A small text in a file's place; source: the specification of Git LFS, version 1.
LFS_POINTER = Kind("a pointer of Git LFS")
_LFS_VERSION = b"version https://git-lfs.github.com/spec/"
_MOST_LFS_BYTES = 1024
ZIP = Kind("a ZIP archive", "archive")
# The names at the start of a zip archive → the kind of the document in it.
_ZIPPED = (
    (b"mimetypeapplication/epub+zip", Kind("an EPUB book", "book")),
    (b"opendocument.spreadsheet", Kind("an OpenDocument spreadsheet", "sheet")),
    (b"opendocument.presentation", Kind("an OpenDocument presentation", "slides")),
    (b"opendocument.text", Kind("an OpenDocument text", "odt")),
    (b"word/", Kind("a Word document", "docx")),
    (b"xl/", Kind("an Excel workbook", "sheet")),
    (b"ppt/", Kind("a PowerPoint presentation", "slides")),
)
# The offset of a mark in a file, the mark, and the kind.
_MARKS: tuple[tuple[int, bytes, Kind], ...] = (
    (0, OLE, OLDER_OFFICE),
    (0, b"SQLite format 3\0", Kind("a SQLite database")),
    (8, b"DUCK", Kind("a DuckDB database")),
    (0, b"\x89PNG\r\n\x1a\n", Kind("a PNG picture", "picture")),
    (0, b"\xff\xd8\xff", Kind("a JPEG picture", "picture")),
    (0, b"GIF8", Kind("a GIF picture")),
    (0, b"II*\0", Kind("a TIFF picture", "picture")),
    (0, b"MM\0*", Kind("a TIFF picture", "picture")),
    (8, b"WEBP", Kind("a WebP picture")),
    (4, b"ftyphei", Kind("a HEIC picture")),
    (4, b"ftypavif", Kind("an AVIF picture")),
    (0, b"8BPS", Kind("a Photoshop picture")),
    (8, b"WAVE", Kind("a sound recording")),
    (0, b"ID3", Kind("a sound recording")),
    (0, b"OggS", Kind("a sound recording")),
    (0, b"fLaC", Kind("a sound recording")),
    (8, b"AVI ", Kind("a video")),
    (4, b"ftyp", Kind("a video")),
    (0, b"\x1aE\xdf\xa3", Kind("a video")),
    (0, b"\x1f\x8b", Kind("a gzip archive", "archive")),
    (0, b"BZh", Kind("a bzip2 archive", "archive")),
    (0, b"\xfd7zXZ\0", Kind("an XZ archive", "archive")),
    (257, b"ustar", Kind("a TAR archive", "archive")),
    (0, b"7z\xbc\xaf\x27\x1c", Kind("a 7z archive")),
    (0, b"Rar!\x1a\x07", Kind("a RAR archive")),
    (0, b"\x28\xb5\x2f\xfd", Kind("a Zstandard archive")),
    (0, b"\x7fELF", Kind("a program")),
    (0, b"MZ", Kind("a Windows program")),
    (0, b"\xcf\xfa\xed\xfe", Kind("a macOS program")),
    (0, b"\xca\xfe\xba\xbe", Kind("a Java class or macOS program")),
    (0, b"\0asm", Kind("a WebAssembly module")),
    (0, b"wOF", Kind("a font")),
    (0, b"OTTO", Kind("a font")),
    (0, b"\0\1\0\0\0", Kind("a font")),
    (0, b"PAR1", Kind("a Parquet table")),
    (0, b"ARROW1", Kind("an Arrow table")),
    (0, b"\x93NUMPY", Kind("a NumPy array")),
    (0, b"\x89HDF\r\n", Kind("an HDF5 file")),
    (0, b"AT&TFORM", Kind("a DjVu document")),
    (60, b"BOOKMOBI", Kind("a Kindle book")),
    (0, b"\xffWPC", Kind("a WordPerfect document")),
)


def kind_of(head: bytes) -> Kind | None:
    """Returns the kind of a file with this start, about 4 KiB; None for text and unknown bytes."""
    if head.startswith(_LFS_VERSION) and b"\noid " in head and len(head) < _MOST_LFS_BYTES:
        return LFS_POINTER
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return next((kind for mark, kind in _ZIPPED if mark in head), ZIP)
    marked = next((kind for at, mark, kind in _MARKS if head.startswith(mark, at)), None)
    if marked is not None:
        return marked
    start = head[:1024].lstrip().lower()
    if b"%pdf-" in start:
        return Kind("a PDF", "pdf")
    if start.startswith(b"{\\rtf"):
        return Kind("rich text", "rtf")
    if start.startswith((b"<!doctype html", b"<html")):
        return Kind("a web page", "html")
    return None
