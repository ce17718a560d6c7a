import pytest

from speccompile.runtime.devices.visible import choose, visible_note
from speccompile.runtime.errors import CompatibilityError

GPUS = [
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
    "GPU-8932f000-0000-4106-c12f-20bd9faed9f6",
    "MIG-3eb87630-93d5-5b2a-8b1e-1a9b1c6a1f00",
]


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        ("auto", 0),
        ("0", 0),
        ("cuda:2", 2),
        ("2", 2),
        ("GPU-8932f937", 0),
        ("gpu-8932F0", 1),
        ("MIG-3eb87630-93d5-5b2a-8b1e-1a9b1c6a1f00", 2),
    ],
)
def test_a_device_is_named_by_index_or_by_the_beginning_of_its_uuid(
    wanted: str, index: int
) -> None:
    assert choose(wanted, GPUS, None) == index


@pytest.mark.parametrize(
    ("wanted", "visible", "message"),
    [
        ("cuda:3", None, "GPU 3 is none of the 3 that are visible; choose 0 to 2"),
        ("7", "0,1,4", r"none of the 3 that are visible \(CUDA_VISIBLE_DEVICES='0,1,4'\)"),
        ("GPU-8932f", None, "GPU-8932f is more than one of the visible GPUs; choose one of GPU-"),
        ("MIG-0", None, "MIG-0 is none of the visible GPUs; choose one of .*, MIG-3eb87630-"),
        ("gpu", None, "'gpu' names no GPU; give auto, an index such as cuda:0, or a UUID"),
        ("-1", None, "'-1' names no GPU"),
        ("", None, "'' names no GPU"),
    ],
)
def test_what_names_no_single_device_is_refused_with_what_there_is(
    wanted: str, visible: str | None, message: str
) -> None:
    with pytest.raises(CompatibilityError, match=message):
        choose(wanted, GPUS, visible)


@pytest.mark.parametrize(
    ("visible", "message"),
    [
        (None, "no GPU is visible; `nvidia-smi -L` lists those of this host"),
        ("", r"\(CUDA_VISIBLE_DEVICES=''\); the variable is empty, which hides all GPUs"),
        (" ", "the variable is empty"),
        ("none", "'none' is neither an index nor a UUID, and hides all GPUs: unset it"),
        ("-1", "'-1' is neither an index nor a UUID, and hides all GPUs: unset it"),
        ("NoDevFiles", "'NoDevFiles' is neither"),
        ("5,0", "the host has no 5: set it to what `nvidia-smi -L` lists"),
        ("GPU-12ab", "the host has no GPU-12ab"),
        ("MIG-3eb87630-93d5-5b2a-8b1e-1a9b1c6a1f00", "the host has no MIG-3eb87630"),
        ("MIG-GPU-8932f937-d72c/7/0", "the host has no MIG-GPU-8932f937-d72c/7/0"),
    ],
)
def test_where_no_device_is_visible_it_says_why(visible: str | None, message: str) -> None:
    with pytest.raises(CompatibilityError, match=message):
        choose("auto", [], visible)


def test_the_variable_is_noted_where_it_is_set() -> None:
    assert visible_note(None) == ""
    assert visible_note("MIG-1") == " (CUDA_VISIBLE_DEVICES='MIG-1')"
