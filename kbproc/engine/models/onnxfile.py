"""Writes graphs in ONNX's format, by the library protobuf, which comes with onnxruntime.

The library onnx does the same, and with what it needs weighs 34 MB. Messages, fields and numbers
are those of its onnx.proto; the fields that no graph of bert.py has are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Message → field → number and type; a star stands before the type of a field that repeats.
_MESSAGES = {
    "ModelProto": {
        "ir_version": (1, "int64"),
        "graph": (7, "GraphProto"),
        "opset_import": (8, "*OperatorSetIdProto"),
    },
    "OperatorSetIdProto": {"domain": (1, "string"), "version": (2, "int64")},
    "GraphProto": {
        "node": (1, "*NodeProto"),
        "name": (2, "string"),
        "initializer": (5, "*TensorProto"),
        "input": (11, "*ValueInfoProto"),
        "output": (12, "*ValueInfoProto"),
    },
    "NodeProto": {
        "input": (1, "*string"),
        "output": (2, "*string"),
        "name": (3, "string"),
        "op_type": (4, "string"),
        "attribute": (5, "*AttributeProto"),
    },
    "AttributeProto": {
        "name": (1, "string"),
        "f": (2, "float"),
        "i": (3, "int64"),
        "ints": (8, "*int64"),
        "type": (20, "int32"),
    },
    "TensorProto": {
        "dims": (1, "*int64"),
        "data_type": (2, "int32"),
        "name": (8, "string"),
        "raw_data": (9, "bytes"),
    },
    "ValueInfoProto": {"name": (1, "string"), "type": (2, "TypeProto")},
    "TypeProto": {"tensor_type": (1, "TensorTypeProto")},
    "TensorTypeProto": {"elem_type": (1, "int32"), "shape": (2, "TensorShapeProto")},
    "TensorShapeProto": {"dim": (1, "*DimensionProto")},
    "DimensionProto": {"dim_value": (1, "int64"), "dim_param": (2, "string")},
}
_PACKAGE = "kbproc.onnx"  # not `onnx`: a process may have loaded that library's messages, too
_FLOAT, _INT64 = 1, 7
_TENSORS = {"float32": _FLOAT, "uint8": 2, "int8": 3, "int64": _INT64}
_ATTRIBUTES = {float: ("f", 1), int: ("i", 2), list: ("ints", 7)}


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    """Returns a node with the name of its first output; attributes: floats, ints, lists of ints."""
    members = []
    for name, value in sorted(attributes.items()):
        field, type = _ATTRIBUTES[value.__class__]
        members.append(_message("AttributeProto", name=name, type=type, **{field: value}))
    return _message(
        "NodeProto", op_type=kind, input=inputs, output=outputs, name=outputs[0], attribute=members
    )


def constant(name: str, value: NDArray[Any]) -> Any:
    """Returns a tensor of float32, uint8, int8 or int64."""
    import numpy as np

    little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
    return _message(
        "TensorProto",
        name=name,
        data_type=_TENSORS[value.dtype.name],
        dims=value.shape,
        raw_data=little.tobytes(),
    )


def save(
    path: Path,
    nodes: Sequence[Any],
    constants: Sequence[Any],
    *,
    inputs: Sequence[str],
    output: str,
    opset: int,
    ir_version: int,
) -> None:
    """Writes a graph whose inputs are the tokens of one text. Raises OSError."""
    dims = [_message("DimensionProto", dim_value=1), _message("DimensionProto", dim_param="tokens")]
    shape = _message("TensorShapeProto", dim=dims)
    graph = _message(
        "GraphProto",
        name="bert",
        node=nodes,
        initializer=constants,
        input=[_value(name, elem_type=_INT64, shape=shape) for name in inputs],
        output=[_value(output, elem_type=_FLOAT)],
    )
    opsets = [_message("OperatorSetIdProto", domain="", version=opset)]
    model = _message("ModelProto", ir_version=ir_version, graph=graph, opset_import=opsets)
    path.write_bytes(model.SerializeToString())


def _value(name: str, **tensor: Any) -> Any:
    kind = _message("TypeProto", tensor_type=_message("TensorTypeProto", **tensor))
    return _message("ValueInfoProto", name=name, type=kind)


def _message(kind: str, /, **fields: Any) -> Any:
    return _classes()[kind](**fields)


@functools.cache
def _classes() -> dict[str, Any]:
    """Returns a class for each message."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field_type = descriptor_pb2.FieldDescriptorProto
    # The older syntax of protobuf, because it tells a field of 0 from one that is not set.
    file = descriptor_pb2.FileDescriptorProto(name="kbproc/onnx", package=_PACKAGE, syntax="proto2")
    for message, fields in _MESSAGES.items():
        entry = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            label = field_type.LABEL_REPEATED if kind[0] == "*" else field_type.LABEL_OPTIONAL
            field = entry.field.add(name=name, number=number, label=label)
            single = kind.removeprefix("*")
            if single in _MESSAGES:
                field.type, field.type_name = field_type.TYPE_MESSAGE, f".{_PACKAGE}.{single}"
            else:
                field.type = getattr(field_type, f"TYPE_{single.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    types = {name: pool.FindMessageTypeByName(f"{_PACKAGE}.{name}") for name in _MESSAGES}
    return {name: message_factory.GetMessageClass(type) for name, type in types.items()}
