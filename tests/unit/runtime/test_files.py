"""Paths that no artifact may have."""

import pytest

from speccompile.runtime.files import FileEntry, check_files, check_paths, is_report

GOOD = ("engines/cpu/target.xml", "tokenizer/tokenizer.json", "run.pyz")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/etc/passwd", "is absolute"),
        ("../up", "'..'"),
        ("engines/../../up", "'..'"),
        ("./here", "'.'"),
        ("a//b", "'//'"),
        ("a/", "'//'"),
        ("a\\b", "backslash"),
        ("nul\0", "printable"),
        ("\u202eright-to-left", "printable"),
        ("\udc80", "printable"),
        ("Manifest.json", "is a record or signature itself"),
        ("measurements.JSON", "is a record or signature itself"),
        ("Model.sig", "is a record or signature itself"),
        ("engines/cpu/TARGET.xml", "differs from 'engines/cpu/target.xml' only by case"),
        ("Engines/cpu/more", "only by case"),
        ("/".join("a" * 17), "nested deeper than 16 levels"),
        ("/".join("a" * 1_000_000), "nested deeper than 16 levels"),
    ],
)
def test_paths(path: str, message: str) -> None:
    check_paths(GOOD)
    with pytest.raises(ValueError, match=r"^files\[") as caught:
        check_paths((*GOOD, path))
    assert message in str(caught.value)


def test_composed_and_decomposed_letters_are_twins() -> None:
    with pytest.raises(ValueError, match="only by case"):
        check_paths(("caf\u00e9", "cafe\u0301"))


@pytest.mark.parametrize("digest", ["A" * 64, "0" * 63, "0" * 65, "x" * 64])
def test_hashes(digest: str) -> None:
    check_files({"a": FileEntry("0" * 64, 0, "engine")})
    with pytest.raises(ValueError, match=r"files\['a'\]\.sha256 must be 64 lower-case hexa"):
        check_files({"a": FileEntry(digest, 0, "engine")})


def test_reports_are_what_is_measured() -> None:
    assert is_report("reports/build.json")
    assert not is_report("reports")
    assert not is_report("engines/reports/x")
