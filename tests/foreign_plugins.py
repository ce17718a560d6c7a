"""TensorRT plugins that are not ours, to see what TensorRT does not let plugins do."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from types import new_class
from typing import Any

__all__ = ["foreign_plugins"]


@contextmanager
def foreign_plugins() -> Generator[None]:
    """``test::Picky`` supports no type at all; ``test::InPlace`` writes into its input."""
    trt = import_module("tensorrt_rtx")
    registry = trt.get_plugin_registry()
    creators = [_creator(trt, name) for name in ("Picky", "InPlace")]
    for creator in creators:
        assert registry.register_creator(creator, "test")
    try:
        yield
    finally:
        for creator in creators:
            registry.deregister_creator(creator)


def _creator(trt: Any, name: str) -> Any:  # noqa: ANN401 - the library has no types
    class Creator:
        def __init__(self) -> None:
            trt.IPluginCreatorV3One.__init__(self)
            self.name = name
            self.plugin_namespace = "test"
            self.plugin_version = "1"
            self.field_names = trt.PluginFieldCollection([])

        def create_plugin(self, node: str, fields: object, phase: object) -> object:
            return _plugin(trt, name)

    return new_class("Creator", (Creator, trt.IPluginCreatorV3One))()


def _plugin(trt: Any, name: str) -> Any:  # noqa: ANN401
    bases = (
        trt.IPluginV3,
        trt.IPluginV3OneCore,
        trt.IPluginV3OneBuildV2,
        trt.IPluginV3OneRuntime,
    )

    class Plugin:
        def __init__(self) -> None:
            for base in bases:
                base.__init__(self)
            self.plugin_name = name
            self.plugin_namespace = "test"
            self.plugin_version = "1"
            self.num_outputs = 1

        def get_capability_interface(self, kind: object) -> object:
            return self

        def clone(self) -> object:
            return _plugin(trt, name)

        def get_output_data_types(self, types: list[object]) -> list[object]:
            return types[:1]

        def get_output_shapes(self, inputs: list[Any], shapes: object, build: object) -> list[Any]:
            return inputs[:1]

        def get_aliased_input(self, output: int) -> int:
            return 0 if name == "InPlace" else -1

        def supports_format_combination(self, position: int, tensors: object, inputs: int) -> bool:
            return name != "Picky"

        def configure_plugin(self, inputs: object, outputs: object) -> None: ...

        def get_workspace_size(self, inputs: object, outputs: object) -> int:
            return 0

        def get_valid_tactics(self) -> list[int]:
            return []

        def get_fields_to_serialize(self) -> object:
            return trt.PluginFieldCollection([])

        def attach_to_context(self, context: object) -> object:
            return self.clone()

        def set_tactic(self, tactic: int) -> None: ...

        def on_shape_change(self, inputs: object, outputs: object) -> None: ...

        def enqueue(self, *arguments: object) -> None: ...

    return new_class("Plugin", (Plugin, *bases))()
