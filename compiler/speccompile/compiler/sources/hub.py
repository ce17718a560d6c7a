"""Models of the Hugging Face Hub, fetched into its own cache, which other tools share."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from speccompile.compiler.sources.checkpoint import SourceError

__all__ = ["fetch_snapshot"]

# Neither pickled weights nor Python; the model card says under which terms the model is given.
_WANTED = ["*.safetensors", "*.json", "*.jinja", "spiece.model", "README.md"]
# Other forms of the same model: folders of them, and Mistral's, beside the weights proper.
_UNWANTED = ["*/*", "consolidated*"]


def fetch_snapshot(model: str, revision: str | None, *, source: str) -> Path:
    """Fetch `model` (``ORG/NAME``) at `revision`, by default the newest, unless it is cached.

    Returns the snapshot's folder, which is named after the commit. Raises SourceError, naming
    the `source`, if there is no such model or revision, no access or no network.
    """
    try:
        return Path(
            huggingface_hub.snapshot_download(
                model, revision=revision, allow_patterns=_WANTED, ignore_patterns=_UNWANTED
            )
        )
    except GatedRepoError as error:
        raise SourceError(
            f"{source}: the model is gated; accept its terms at https://huggingface.co/{model}, "
            "then run `hf auth login`"
        ) from error
    except RevisionNotFoundError as error:
        raise SourceError(f"{source}: {model} has no revision {revision}") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise SourceError(
            f"{source}: no such file, folder or Hugging Face model; check the name, or run "
            "`hf auth login` if the model is private"
        ) from error
    except LocalEntryNotFoundError as error:
        raise SourceError(
            f"{source}: the Hugging Face Hub cannot be reached and the model is not in its cache; "
            "connect to the network, or give the path of a local copy"
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise SourceError(f"{source}: fetching failed ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
