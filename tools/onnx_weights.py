"""Reads the weights of a BERT encoder out of an ONNX file and writes them as safetensors. Standard library only.

Why: one reference model (paraphrase-MiniLM-L3-v2) can be had from the package registry only as an ONNX export. The
export folds every Linear weight into an anonymous transposed constant that a MatMul node reads; `bert_tensors` gives
each back its name in the checkpoint and its (out_features, in_features) shape.

Field numbers are those of `onnx.proto3` (ModelProto, GraphProto, NodeProto, TensorProto). Bytes are copied, never
converted: ONNX raw data and safetensors are both little-endian.
"""
from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

FLOAT = 1  # TensorProto.DataType


class OnnxError(Exception):
    """The file is not the ONNX export that this reader knows."""


@dataclass(frozen=True)
class Tensor:
    """One float32 tensor: shape, and its bytes in row-major order."""

    shape: tuple[int, ...]
    data: bytes | memoryview


@dataclass(frozen=True)
class Node:
    name: str
    op_type: str
    inputs: list[str]


def _varint(buf: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buf[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(buf: memoryview) -> Iterator[tuple[int, Any]]:
    """The (field number, value) pairs of one protobuf message; length-delimited values as views."""
    at = 0
    while at < len(buf):
        key, at = _varint(buf, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(buf, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(buf, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise OnnxError(f"wire type {wire} at byte {at}: not a protobuf message")
        if at + size > len(buf):
            raise OnnxError(f"field {number} wants {size} bytes at {at}, the message has {len(buf)}: truncated file")
        yield number, buf[at : at + size]
        at += size


def _tensor(buf: memoryview) -> tuple[str, Tensor | None]:
    """Name and value of a TensorProto; None for other types than float32."""
    name, dims, kind, data = "", [], 0, memoryview(b"")
    for number, value in fields(buf):
        if number == 1:  # dims: packed or not
            if isinstance(value, int):
                dims.append(value)
            else:
                at = 0
                while at < len(value):
                    dim, at = _varint(value, at)
                    dims.append(dim)
        elif number == 2:
            kind = value
        elif number == 8:
            name = bytes(value).decode()
        elif number in (4, 9):  # float_data (packed), raw_data: the same bytes
            data = value
    if kind != FLOAT:
        return name, None
    count = 1
    for dim in dims:
        count *= dim
    if len(data) != 4 * count:
        raise OnnxError(f"{name}: {len(data)} bytes for shape {dims}")
    return name, Tensor(tuple(dims), data)


def _node(buf: memoryview) -> Node:
    name, op_type, inputs = "", "", []
    for number, value in fields(buf):
        if number == 1:
            inputs.append(bytes(value).decode())
        elif number == 3:
            name = bytes(value).decode()
        elif number == 4:
            op_type = bytes(value).decode()
    return Node(name, op_type, inputs)


def read_graph(model: bytes) -> tuple[dict[str, Tensor], list[Node]]:
    """Float32 initialisers by name, and the nodes, of an ONNX model."""
    tensors: dict[str, Tensor] = {}
    nodes: list[Node] = []
    for number, graph in fields(memoryview(model)):
        if number != 7:
            continue
        for part, value in fields(graph):
            if part == 1:
                nodes.append(_node(value))
            elif part == 5:
                name, tensor = _tensor(value)
                if tensor is not None:
                    tensors[name] = tensor
    if not tensors:
        raise OnnxError("no float32 initialisers: not an ONNX model with weights")
    return tensors, nodes


def transpose(tensor: Tensor) -> Tensor:
    """(rows, columns) -> (columns, rows)."""
    rows, columns = tensor.shape
    values, out = array("f", bytes(tensor.data)), array("f")
    for column in range(columns):
        out.extend(values[column::columns])
    return Tensor((columns, rows), out.tobytes())


def bert_tensors(model: bytes, prefix: str) -> dict[str, Tensor]:
    """The checkpoint's tensors: named initialisers under `prefix`, and the MatMul constants named after their scope.

    A node is called `/<prefix as path>/encoder/layer.0/attention/self/query/MatMul`; the scope between gives the name.
    """
    initialisers, nodes = read_graph(model)
    tensors = {name[len(prefix) :]: t for name, t in initialisers.items() if name.startswith(prefix)}
    scope_start = "/" + prefix.rstrip(".").split(".")[-1] + "/"
    for node in nodes:
        if node.op_type == "MatMul" and node.inputs[1] in initialisers:
            scope = node.name.split(scope_start)[1].rsplit("/", 1)[0].replace("/", ".")
            tensors[f"{scope}.weight"] = transpose(initialisers[node.inputs[1]])
    return tensors


def write_safetensors(tensors: dict[str, Tensor], out: BinaryIO) -> None:
    """Writes float32 tensors in the layout of the safetensors library: by name, header padded to 8 bytes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in sorted(tensors):
        size = len(tensors[name].data)
        header[name] = {"dtype": "F32", "shape": list(tensors[name].shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    out.write(struct.pack("<Q", len(text)) + text)
    for name in sorted(tensors):
        out.write(tensors[name].data)
