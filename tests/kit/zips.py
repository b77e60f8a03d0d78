"""Makes ZIP archives whose bytes are the same at any time."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping


def zipped(files: Mapping[str, str | bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in files.items():  # a ZipInfo has the date 1980, a name alone the present
            archive.writestr(zipfile.ZipInfo(name), data, compression)
    return target.getvalue()
