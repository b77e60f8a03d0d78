"""Reads and writes the tensors of a model's folder, in files of the format safetensors.

A file is the length of its header in eight bytes, the header in JSON, which tells each tensor's
kind, shape and place, and the numbers. The library of that name would be a package for this alone.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.values import NOT_READABLE, decoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LENGTH_BYTES = 8
# The kinds of the format that numpy has: BF16 and the numbers of eight bits are none of them.
_KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "i1"}
_ABOUT = "__metadata__"


class _Place(msgspec.Struct, frozen=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


_decode_header = decoder(dict[str, msgspec.Raw]).decode
_decode_place = decoder(_Place).decode


def read_tensors(folder: Path) -> dict[str, NDArray[Any]]:
    """Returns the tensors of all files in the folder, as they lie in the mapped files.

    Raises OSError, TypeError for numbers that numpy lacks, ValueError for a damaged file.
    """
    tensors: dict[str, NDArray[Any]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors.update(_tensors_of(file))
    return tensors


def _tensors_of(file: Path) -> dict[str, NDArray[Any]]:
    import numpy as np

    if file.stat().st_size < _LENGTH_BYTES:
        raise ValueError(f"{file.name} is cut off")
    data = np.memmap(file, np.uint8, "r")
    length = int.from_bytes(data[:_LENGTH_BYTES].tobytes(), "little")
    begin = _LENGTH_BYTES + length
    try:
        header = _decode_header(data[_LENGTH_BYTES:begin].tobytes())
        places = {name: _decode_place(raw) for name, raw in header.items() if name != _ABOUT}
    except NOT_READABLE as error:
        raise ValueError(f"the header of {file.name} can't be read: {error}") from error
    tensors = {}
    for name, place in places.items():
        if place.dtype not in _KINDS:
            raise TypeError(f"{name} has numbers of the kind {place.dtype}")
        kind, (first, end) = np.dtype(_KINDS[place.dtype]), place.data_offsets
        size = kind.itemsize * math.prod(place.shape)
        if min(place.shape, default=0) < 0 or end - first != size or not 0 <= first <= end:
            raise ValueError(f"{name} in {file.name} has another size than its shape")
        if begin + end > len(data):
            raise ValueError(f"{file.name} is cut off")
        tensors[name] = data[begin + first : begin + end].view(kind).reshape(place.shape)
    return tensors


def write_tensors(file: Path, tensors: dict[str, NDArray[np.float32]]) -> None:
    """Writes tensors of float32 into a file. Raises OSError."""
    places, at = {}, 0
    for name, tensor in tensors.items():
        places[name] = _Place("F32", list(tensor.shape), (at, at + tensor.nbytes))
        at += tensor.nbytes
    # The library transformers loads no file that does not say so.
    header = msgspec.json.encode({_ABOUT: {"format": "pt"}, **places})
    with file.open("wb") as stream:
        stream.write(len(header).to_bytes(_LENGTH_BYTES, "little") + header)
        for tensor in tensors.values():
            stream.write(tensor.astype("<f4").tobytes())
