"""`measurements.json`: what an artifact was measured to do on the host that built it.

Two builds of one artifact measure different figures; the manifest, which says what it is, has none
of them, and these name the manifest that they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from speccompile.runtime.draft_names import engine_name
from speccompile.runtime.errors import ArtifactError
from speccompile.runtime.files import FileEntry, check_files, is_report
from speccompile.runtime.manifest import SCHEMA_VERSION, Manifest
from speccompile.runtime.records import LATER, parse_record, record_bytes, require

__all__ = ["Defaults", "Measurements", "parse_measurements", "unmeasured"]


_DEFAULTS = ("model", "hedge", "ngram", "none")


@dataclass(frozen=True)
class Defaults:
    """What drafts, and how many tokens a round, when the caller does not say.

    `draft` is "model", "hedge", "ngram", "none" or an expert of the manifest.
    """

    draft: str
    draft_length: int


@dataclass(frozen=True)
class Measurements:
    """Those of the artifact whose identity is `manifest`; `files` has every path under `reports/`.

    `cost_ms` maps a role and a number of query rows to the median milliseconds of a step with that
    many, padding included. `acceptance[i]` is the probability that position i of a proposal is
    accepted, given that the ones before it were; `experts` has the same of each expert. `lossless`
    tells whether speculative decoding gave the tokens of plain decoding. The `defaults` follow from
    these.
    """

    schema: int
    manifest: str
    cost_ms: Mapping[str, Mapping[int, float]]
    acceptance: tuple[float, ...]
    lossless: bool
    defaults: Defaults
    files: Mapping[str, FileEntry]
    experts: Mapping[str, tuple[float, ...]] = field(
        default_factory=dict[str, tuple[float, ...]], metadata=LATER
    )

    def of_engine(self, name: str) -> tuple[float, ...]:
        """The acceptance of "draft", or without one of n-grams, or of an expert."""
        return self.acceptance if name == "draft" else self.experts.get(name, ())

    def to_bytes(self) -> bytes:
        """The content of `measurements.json`; raises ValueError for a number that is not finite."""
        return record_bytes(self)


def unmeasured(manifest: Manifest) -> Measurements:
    """Those of an artifact of which nothing is known yet: it claims nothing and does not draft."""
    defaults = Defaults("none", 0)
    return Measurements(SCHEMA_VERSION, manifest.identity, {}, (), False, defaults, {})


def parse_measurements(data: bytes, where: str, manifest: Manifest) -> Measurements:
    """Read what `Measurements.to_bytes` wrote for the artifact of `manifest`.

    Raises ArtifactError, beginning with `where` and naming the field, for anything else.
    """
    measurements = parse_record(Measurements, data, where, schema=SCHEMA_VERSION, check=_check)
    if measurements.manifest != manifest.identity:
        raise ArtifactError(
            f"{where}: belongs to the manifest {measurements.manifest}, but the one beside it is "
            f"{manifest.identity}; copy or build the artifact again"
        )
    for role in sorted(measurements.cost_ms.keys() - manifest.engines.keys()):
        raise ArtifactError(f"{where}: cost_ms[{role!r}] is of no engine of the manifest")
    for name in sorted(measurements.experts.keys() - set(manifest.experts)):
        raise ArtifactError(f"{where}: experts[{name!r}] is of no expert of the manifest")
    known, draft = (*_DEFAULTS, *manifest.experts), measurements.defaults.draft
    if draft not in known:
        raise ArtifactError(
            f"{where}: defaults.draft must be one of {', '.join(known)}, not {draft!r}"
        )
    needed = set[str]() if draft in ("ngram", "none") else {"target", engine_name(draft)}
    for role in sorted(needed - measurements.cost_ms.keys()):
        raise ArtifactError(
            f"{where}: cost_ms[{role!r}] is missing, though a model drafts by default"
        )
    return measurements


def _check(measurements: Measurements) -> None:
    check_files(measurements.files)
    for path in measurements.files:
        require(is_report(path), f"files[{path!r}] is no report: it belongs into the manifest")
    for role, costs in measurements.cost_ms.items():
        require(bool(costs), f"cost_ms[{role!r}] is empty")
        for rows, cost in costs.items():
            require(cost > 0, f"cost_ms[{role!r}]['{rows}'] must be above 0")
    _check_acceptance("acceptance", measurements.acceptance)
    for name, acceptance in measurements.experts.items():
        _check_acceptance(f"experts[{name!r}]", acceptance)


def _check_acceptance(where: str, acceptance: Sequence[float]) -> None:
    for index, probability in enumerate(acceptance):
        require(probability <= 1, f"{where}[{index}] must be at most 1, not {probability}")
