from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest

from speccompile.compiler.sources import gguf_file
from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.gguf_file import GGUFFile, read_gguf

ENCODED = ("BF16", "Q4_0", "Q8_0", "Q4_K", "Q6_K", "IQ4_XS", "TQ1_0")
ELEMENTS = (np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64)


def write(path: Path, *, alignment: int | None = None) -> Path:
    """A file with a value of every type and a tensor of every kind, by the format's own writer."""
    writer = gguf.GGUFWriter(path, "llama")
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    writer.add_uint8("u8", 255)
    writer.add_int8("i8", -128)
    writer.add_uint16("u16", 65535)
    writer.add_int16("i16", -32768)
    writer.add_uint32("u32", 2**32 - 1)
    writer.add_int32("i32", -(2**31))
    writer.add_uint64("u64", 2**64 - 1)
    writer.add_int64("i64", -(2**63))
    writer.add_float32("f32", 1e-5)
    writer.add_float64("f64", 1e-300)
    writer.add_bool("yes", True)
    writer.add_bool("no", False)
    writer.add_string("text", "na\u00efve \U0001f389\n\x00")
    writer.add_key_value("empty", "", gguf.GGUFValueType.STRING)
    writer.add_array("strings", ["a", "", "\u4f60\u597d"])
    writer.add_array("integers", [1, -2, 3])
    writer.add_array("floats", [0.5, -1.5])
    writer.add_array("bools", [True, False, True])
    writer.add_array("bytes", b"\x00\xff\x10")
    random_numbers = np.random.default_rng(1)
    for kind in ELEMENTS:
        values = (random_numbers.random((3, 5)) * 100).astype(kind)
        writer.add_tensor(np.dtype(kind).name, values)
    for name in ENCODED:
        encoding = gguf.GGMLQuantizationType[name]
        block, size = gguf.GGML_QUANT_SIZES[encoding]
        stored = random_numbers.integers(0, 256, (2, 3, 256 // block * size), np.uint8)
        writer.add_tensor(name, stored, raw_dtype=encoding)
    writer.add_tensor("vector", np.arange(7, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("alignment", [None, 8, 4096])
def test_file_is_read_as_gguf_s_own_reader_reads_it(tmp_path: Path, alignment: int | None) -> None:
    path = write(tmp_path / "x.gguf", alignment=alignment)
    found, reader = read_gguf(path), gguf.GGUFReader(path)
    expected = {name: field.contents() for name, field in reader.fields.items()}
    assert found.metadata.where == str(path)
    assert {name: (type(value), value) for name, value in found.metadata.values.items()} == {
        name: (type(value), value) for name, value in expected.items() if name[:5] != "GGUF."
    }
    assert list(found.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        stored = found.tensors[tensor.name]
        assert stored.name == tensor.name
        assert stored.encoding == tensor.tensor_type
        assert stored.shape == tuple(reversed(tensor.shape.tolist()))
        assert stored.data.dtype == tensor.data.dtype
        np.testing.assert_array_equal(stored.data, tensor.data)


def test_empty_and_scalar_are_read(tmp_path: Path) -> None:
    header = build(keys=[("x", 9, struct.pack("<IQ", 8, 0))], tensors=[("t", [], 0, 0)])
    found = opened(tmp_path, header + bytes(4))
    assert found.metadata.values == {"x": []}
    assert found.tensors["t"].data.shape == ()


def test_version_2_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf")
    newer = read_gguf(path)
    path.write_bytes(b"GGUF\x02" + path.read_bytes()[5:])
    assert read_gguf(path).metadata == newer.metadata


def test_writing_to_a_tensor_leaves_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf")
    before = path.read_bytes()
    data = read_gguf(path).tensors["vector"].data
    assert data.dtype == np.float32
    assert data.flags.writeable
    assert data.flags.c_contiguous
    assert not data.flags.owndata
    data[:] = 0
    assert path.read_bytes() == before


NUMBER = struct.pack("<I", 7)
HUGE = 2**63
CASES: dict[str, tuple[bytes, str]] = {}


def case(name: str, contents: bytes, message: str) -> None:
    CASES[name] = contents, message


def build(
    *,
    magic: bytes = b"GGUF",
    version: bytes = b"\x03\0\0\0",
    counts: tuple[int, int] | None = None,
    keys: list[tuple[str, int, bytes]] | None = None,
    tensors: list[tuple[str, list[int], int, int]] | None = None,
) -> bytes:
    """A header, byte by byte, padded to 32: keys are (name, type, value)."""
    keys, tensors = keys or [], tensors or []
    contents = magic + version + struct.pack("<QQ", *(counts or (len(tensors), len(keys))))
    for name, kind, value in keys:
        contents += string(name) + struct.pack("<I", kind) + value
    for name, extents, kind, offset in tensors:
        contents += string(name) + struct.pack(f"<I{len(extents)}Q", len(extents), *extents)
        contents += struct.pack("<IQ", kind, offset)
    return contents + bytes(-len(contents) % 32)


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def array(kind: int, count: int, values: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + values


case("empty", b"", "empty file")
case("short", b"GG", "at byte 0: 4 numbers would pass the end of 2")
case("other", build(magic=b"GGML"), "at byte 0: does not begin with GGUF")
case("old", build(version=b"\1\0\0\0"), "version 1 is not supported; supported: 2, 3")
case("new", build(version=b"\x04\0\0\0"), "version 4 is not supported")
case("big-endian", build(version=b"\0\0\0\3"), "at byte 4: it is big-endian")
case("no counts", build()[:12], "at byte 8: 1 numbers would pass the end of 12")
case("many keys", build(counts=(0, HUGE)), "would pass the end of 32")
case("many tensors", build(counts=(HUGE, 0)), "would pass the end of 32")
case("unknown type", build(keys=[("x", 13, NUMBER)]), "values of type 13 are unknown")
case("unknown items", build(keys=[("x", 9, array(13, 1))]), "values of type 13 are unknown")
case("nested", build(keys=[("x", 9, array(9, 1, array(4, 1, NUMBER)))]), "an array of arrays")
case("long key", build(counts=(0, 1))[:24] + struct.pack("<Q", HUGE), "at byte 24: a string")
case(
    "long string",
    build(keys=[("x", 8, struct.pack("<Q", HUGE))]),
    f"at byte 37: a string of {HUGE} bytes would pass the end of 64",
)
case("long array", build(keys=[("x", 9, array(4, HUGE))]), f"{HUGE} numbers would pass the end")
case("many strings", build(keys=[("x", 9, array(8, HUGE))]), f"{HUGE} strings would pass")
case("bad text", build(keys=[("x", 8, struct.pack("<Q", 2) + b"\xc3\x28")]), "is not UTF-8")
case("bad truth", build(keys=[("x", 7, b"\x02")]), "a truth value is neither 0 nor 1")
case("key twice", build(keys=[("x", 4, NUMBER)] * 2), "at byte 41: key 'x' occurs twice")
case("tensor twice", build(tensors=[("t", [1], 0, 0)] * 2), "tensor 't' occurs twice")
case("dimensions", build(tensors=[("t", [1] * 5, 0, 0)]), "a tensor of 5 dimensions; at most 4")
case("tensor type", build(tensors=[("t", [1], 999, 0)]), "tensor type 999 is unknown")
case("removed type", build(tensors=[("t", [32], 4, 0)]), "tensor type 4 is unknown")
case("no extent", build(tensors=[("t", [4, 0], 0, 0)]), r"a tensor of \[0, 4\] cannot be stored")
case("part block", build(tensors=[("t", [33], 8, 0)]), r"a tensor of \[33\] .* as Q8_0")
case("outside", build(tensors=[("t", [9], 0, 0)]) + bytes(32), "tensor 't' of 36 bytes at 64")
case("far", build(tensors=[("t", [1], 0, HUGE)]) + bytes(32), "inside the file's 96 bytes")
case("vast", build(tensors=[("t", [HUGE] * 4, 0, 0)]) + bytes(32), "inside the file's 128 bytes")
case("crooked", build(tensors=[("t", [1], 0, 4)]) + bytes(32), "is not aligned to 32")
for number, alignment in enumerate((struct.pack("<I", 0), struct.pack("<I", 24))):
    keys = [("general.alignment", 4, alignment)]
    case(f"alignment {number}", build(keys=keys), "must be a power of two, not (0|24)")
case("alignment type", build(keys=[("general.alignment", 8, string("8"))]), "two, not '8'")


@pytest.mark.parametrize("name", CASES)
def test_malformed_file(tmp_path: Path, name: str) -> None:
    contents, message = CASES[name]
    tracemalloc.start()
    try:
        with pytest.raises(SourceError, match=rf"x\.gguf: not readable as GGUF \(.*{message}"):
            opened(tmp_path, contents)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"x\.gguf: not readable as GGUF \(.*No such file"):
        read_gguf(tmp_path / "x.gguf")


def test_header_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.gguf")
    monkeypatch.setattr(gguf_file, "_HEADER_LIMIT", 300)
    with pytest.raises(SourceError, match="would pass the limit of 300"):
        read_gguf(path)


def test_any_damage_is_a_source_error(tmp_path: Path) -> None:
    """Cuts anywhere in the header, and bytes changed there, one and several at a time."""
    sound = write(tmp_path / "sound.gguf").read_bytes()
    source = random.Random(5)
    size = 1500  # of the header, about
    assert sound.index(b"vector") < size
    damaged = [sound[:length] for length in range(0, size, 5)]
    for count in (1, 1, 2, 8):
        for _ in range(150):
            contents = bytearray(sound)
            for _ in range(count):
                contents[source.randrange(size)] = source.choice((0, 1, 127, 128, 255))
            damaged.append(bytes(contents))
    refused = sum(refuses(tmp_path, contents) for contents in damaged)
    assert len(damaged) // 4 < refused < len(damaged)


def refuses(folder: Path, contents: bytes) -> bool:
    """Whether reading raises SourceError; anything else that it raises fails the test."""
    try:
        found = opened(folder, contents)
    except SourceError:
        return True
    for tensor in found.tensors.values():
        np.array(tensor.data)
    return False


def opened(folder: Path, contents: bytes) -> GGUFFile:
    path = folder / "x.gguf"
    path.write_bytes(contents)
    return read_gguf(path)
