from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from speccompile.compiler.drafts.lesson import lesson_of
from speccompile.compiler.drafts.responses import Response
from speccompile.compiler.drafts.shards import Shards
from speccompile.compiler.drafts.shared_student import SharedStudent
from speccompile.compiler.drafts.target_caches import TargetCaches
from tests.families import tiny
from tests.unit.compiler.drafts.tiny import ENDS, PROMPTS, VOCABULARY, answers, decoder_of

TARGET = tiny("llama-tied")
ALL = torch.arange(VOCABULARY)


def student() -> SharedStudent:
    return SharedStudent.sharing(decoder_of(), TARGET.read, (1,), ALL)


def read(folder: Path, responses: list[Response]) -> list[Response]:
    caches = TargetCaches(decoder_of(), "a target", (1,), folder)
    return caches.of(responses, lambda done, total: None)


def laws(responses: list[Response]) -> torch.Tensor:
    with torch.no_grad():
        return student().logits(lesson_of(responses, ALL, VOCABULARY), 1)


def test_what_was_kept_teaches_as_what_is_read_again(tmp_path: Path) -> None:
    few = answers()[3:9]
    kept = laws(read(tmp_path, few))
    anew = laws(few)
    assert (kept - anew).abs().max() < 0.01 * anew.abs().max()  # in halves


def test_what_is_kept_is_what_the_student_sees(tmp_path: Path) -> None:
    few = read(tmp_path, answers()[3:9])
    forged = [replace(each, read=np.zeros_like(each.read)) for each in few]
    kept = laws(few)
    assert (laws(forged) - kept).abs().max() > 0.05 * kept.abs().max()


def test_texts_are_read_once(tmp_path: Path) -> None:
    first = read(tmp_path, answers())
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = read(tmp_path, answers())
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == files
    for one, other in zip(first, again, strict=True):
        assert one.read is not None
        assert other.read is not None
        np.testing.assert_array_equal(one.read, other.read)
        assert one.read.shape[:3] == (len(one.text) - 1, 2, 1)
    read(tmp_path, answers()[1:])  # other texts, another file
    assert len(list(tmp_path.iterdir())) == len(files) + 1


def test_what_was_read_while_answering_is_found_and_the_same(tmp_path: Path) -> None:
    # Answers end early, so that sequences leave the batch at different times.
    ends = [*ENDS, *(int(each.tokens[at]) for at, each in enumerate(answers()[:12]))]
    caches = TargetCaches(decoder_of(), "a target", (0, 1), tmp_path / "read")
    shards = Shards(tmp_path, "a target", PROMPTS, 20, seed=0, greedy=True)
    shards.generate(decoder_of(), ends, lambda done, said: None, caches)
    responses = shards.read()
    assert len({len(each.tokens) for each in responses}) > 2
    [file] = (tmp_path / "read").iterdir()
    while_answering = caches.of(responses, lambda done, total: None)
    file.unlink()
    later = caches.of(responses, lambda done, total: None)
    assert file.exists()  # under the same name
    for one, other in zip(while_answering, later, strict=True):
        assert one.read is not None
        assert other.read is not None
        assert one.read.dtype == other.read.dtype == np.float16
        np.testing.assert_allclose(one.read, other.read, rtol=0, atol=4e-3)
