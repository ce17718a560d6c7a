import pytest

from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.registry.reference import parse_reference

DIGEST = f"sha256:{'ab' * 32}"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "oci://registry.example/models/chat:1.0",
            ("registry.example", "models/chat", "1.0", None),
        ),
        ("oci://localhost:5000/a", ("localhost:5000", "a", None, None)),
        (f"oci://[::1]:5000/a-b/c_d@{DIGEST}", ("[::1]:5000", "a-b/c_d", None, DIGEST)),
        (f"oci://r/a:v1@{DIGEST}", ("r", "a", "v1", DIGEST)),
    ],
)
def test_parts(text: str, parts: tuple[str, str, str | None, str | None]) -> None:
    reference = parse_reference(text)
    found = reference.registry, reference.repository, reference.tag, reference.digest
    assert found == parts
    assert str(reference) == text


@pytest.mark.parametrize(
    "text",
    [
        *("registry.example/a:1", "oci://a:1", "oci:///a:1", "oci://r/A:1", "oci://r/a/:1"),
        *(
            "oci://r/../a:1",
            "oci://u@r/a:1",
            "oci://r/a:1@sha256:ab",
            "oci://r/a:1?x",
            "oci://r/a:1\n",
        ),
        *("https://r/a:1", "oci://r/a b:1", "oci://-r/a:1", "oci://r:123456/a:1"),
    ],
)
def test_no_reference(text: str) -> None:
    with pytest.raises(SpeccompileError, match="is no place in a registry; write oci://"):
        parse_reference(text)


def test_version() -> None:
    assert parse_reference("oci://r/a:1").version == "1"
    assert parse_reference(f"oci://r/a:1@{DIGEST}").version == DIGEST
    with pytest.raises(SpeccompileError, match=r"oci://r/a: names no version; add a tag, as in"):
        _ = parse_reference("oci://r/a").version


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.10", "[::1]"])
@pytest.mark.parametrize("port", ["", ":5000"])
def test_loopback(host: str, port: str) -> None:
    assert parse_reference(f"oci://{host}{port}/a:1").is_loopback


@pytest.mark.parametrize("host", ["localhost.example", "10.0.0.1", "127.0.0.1.example", "[::2]"])
def test_not_loopback(host: str) -> None:
    assert not parse_reference(f"oci://{host}/a:1").is_loopback
