"""quantize: write one role's weights in its precision."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.calibration import read_statistics
from speccompile.compiler.quantize import Int8Inputs, write_weights
from speccompile.compiler.smoothing import smoothed
from speccompile.compiler.stages.check import Checked

__all__ = ["run"]


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `precision`, `layers` (of "mixed": pairs of pattern and precision), and
    `outlier_threshold`, `smoothing` (alpha) and `activations` as in a recipe.

    The inputs are a `load`, the `check` and a `reference` stage.
    """
    loaded, checked, reference = inputs.values()
    model = Checked(loaded, checked)
    read, statistics = model.reader(), read_statistics(reference)
    if settings["smoothing"]:
        read, statistics = smoothed(model.config, read, statistics, settings["smoothing"])
    static = settings["activations"] == "static"

    def shown(name: str) -> NDArray[np.float32]:
        settings["report"](name)
        return read(name)

    stored = write_weights(
        model.config,
        shown,
        settings["precision"],
        folder,
        layers=dict(settings["layers"] or {}),
        inputs=Int8Inputs(statistics, settings["outlier_threshold"], static),
    )
    for name, tensor in stored.items():
        if tensor.kept_peak is not None:
            settings["report"](f"{name} is kept in fp32: it holds {tensor.kept_peak:g}")
