"""``reports/sbom.cdx.json``: what the artifact was made of and with, as CycloneDX has it.

The artifact is the component described; models and packages are those it depends on. Packages that
only compiled it have the scope "excluded": a host that runs it does not need them.
"""

# The classes of CycloneDX are made by a decorator through which pyright does not see; mypy does.
# pyright: reportCallIssue=false, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportReturnType=false
from __future__ import annotations

from collections.abc import Iterator, Mapping

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from speccompile.compiler.dependencies import Package, installed
from speccompile.runtime.manifest import Manifest

__all__ = ["SBOM_FILE", "sbom", "sources"]

SBOM_FILE = "sbom.cdx.json"

_OURS = "speccompile"
_LIBRARY_EXTRAS = {"tensorrt": "cuda", "tensorrt_rtx": "tensorrt-rtx"}


def sbom(manifest: Manifest) -> str:
    """The document, as JSON."""
    described = Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        name=manifest.name,
        bom_ref="artifact",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=manifest.identity)],
    )
    packages = {name: _package(*found) for name, found in _packages(manifest).items()}
    models = list(_models(manifest))
    bom = Bom(
        components=[*models, *packages.values()],
        metadata=BomMetaData(component=described),
    )
    bom.metadata.tools.components.add(
        Component(type=ComponentType.APPLICATION, name=_OURS, version=manifest.compiler_version)
    )
    bom.register_dependency(described, [*models, packages[_OURS]])
    for name, (package, _) in _packages(manifest).items():
        bom.register_dependency(packages[name], [packages[each] for each in package.requires])
    return str(JsonV1Dot6(bom).output_as_string(indent=1)) + "\n"


def _packages(manifest: Manifest) -> dict[str, tuple[Package, ComponentScope]]:
    """All of the compiler by name, and whether running the artifact needs them."""
    libraries = {_LIBRARY_EXTRAS[gpu.library] for gpu in manifest.gpus.values()}
    runtime = installed(_OURS, libraries)
    return {
        name: (
            package,
            ComponentScope.REQUIRED if name in runtime else ComponentScope.EXCLUDED,
        )
        for name, package in installed(_OURS, ["compiler", *libraries]).items()
    }


def _package(package: Package, scope: ComponentScope) -> Component:
    purl = PackageURL("pypi", name=package.name, version=package.version)
    return Component(
        name=package.name,
        version=package.version,
        bom_ref=str(purl),
        purl=purl,
        scope=scope,
        licenses=_licenses(package.license),
    )


def _models(manifest: Manifest) -> Iterator[Component]:
    """The checkpoints; the draft that is the target itself is not another."""
    for name, found in sources(manifest).items():
        if "sha256" in found:
            yield Component(
                type=ComponentType.MACHINE_LEARNING_MODEL,
                name=found["source"],
                bom_ref=f"model:{name}",
                version=found.get("revision"),
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=found["sha256"])],
                licenses=_licenses(found.get("license")),
                properties=[Property(name="speccompile:role", value=name)],
            )


def sources(manifest: Manifest) -> dict[str, dict[str, str]]:
    """What the manifest says of where the models came from, by role: `source`, `sha256` ..."""
    told = dict(manifest.provenance)
    experts = told.pop("experts", None)
    tables = {**told, **(experts if isinstance(experts, Mapping) else {})}
    tables.pop("recipe", None)
    return {
        str(role): {str(key): value for key, value in table.items() if isinstance(value, str)}
        for role, table in tables.items()
        if isinstance(table, Mapping)
    }


def _licenses(name: str | None) -> list[License]:
    return [LicenseFactory().make_from_string(name)] if name else []
