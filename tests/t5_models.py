"""Tiny random T5 models as transformers runs them, and the folders that it saves them in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import Unigram

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.families.catalogue import family_of
from speccompile.compiler.families.family import Family
from speccompile.compiler.sources.metadata import Metadata
from speccompile.compiler.texts import builtin_text

__all__ = ["T5_KINDS", "VOCABULARY", "TinyT5", "save_t5", "t5_tokenizer", "tiny_t5"]

T5_KINDS = {"t5": (False, True), "v1.1": (True, False), "gated-tied": (True, True)}
"""Whether the feed-forward is gated, and the head tied."""

VOCABULARY = 400


@dataclass(frozen=True)
class TinyT5:
    """transformers' model, the oracle of the contract, and what our words for it are."""

    model: Any
    family: Family
    config: DecoderConfig

    def read(self, name: str) -> NDArray[np.float32]:
        where = self.family.stored(self.config, name)
        return where.canonical(self.model.state_dict()[where.name].float().numpy())

    def logits(self, source: Sequence[int], tokens: Sequence[int]) -> NDArray[np.float32]:
        """[N, V] of the decoder's `tokens`, computed without a cache."""
        import torch

        with torch.inference_mode():
            rows: NDArray[np.float32] = (
                self.model(
                    input_ids=torch.tensor([source]),
                    decoder_input_ids=torch.tensor([tokens]),
                    use_cache=False,
                )
                .logits[0]
                .numpy()
            )
        return rows


def tiny_t5(kind: str = "v1.1", *, seed: int = 0, **settings: object) -> TinyT5:
    """A model of one of the `T5_KINDS` with random weights, the same ones each time.

    Norms and biases are drawn too, which else are all alike, and wide: an error in one shows.
    """
    import torch
    from transformers import AutoConfig, T5ForConditionalGeneration

    gated, tied = T5_KINDS[kind]
    config = AutoConfig.for_model(
        "t5",
        **{
            "vocab_size": VOCABULARY,
            "d_model": 48,
            "d_kv": 16,
            "d_ff": 72,
            "num_layers": 2,
            "num_decoder_layers": 3,
            "num_heads": 4,
            "relative_attention_num_buckets": 8,
            "relative_attention_max_distance": 24,
            "feed_forward_proj": "gated-gelu" if gated else "relu",
            "tie_word_embeddings": tied,
            "decoder_start_token_id": 0,
            **settings,
        },
    )
    torch.manual_seed(seed)
    build: Any = T5ForConditionalGeneration
    model = build(config).eval()
    with torch.no_grad():
        if not tied:
            model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
        for name, parameter in model.named_parameters():
            if "layer_norm" in name:
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
            elif "relative_attention_bias" in name:
                torch.nn.init.normal_(parameter)
            elif ".q." in name:  # initialized for scores that are hardly different
                parameter.mul_(4.0)
    values = Metadata("config.json", model.config.to_dict())
    family = family_of(values)
    return TinyT5(model, family, replace(family.read(values), tied_embeddings=tied))


def t5_tokenizer() -> Tokenizer:
    """A Unigram tokenizer in T5's form, trained on the built-in text."""
    tokenizer = Tokenizer(Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(builtin_text("calibration").splitlines(), trainer)
    return tokenizer


def save_t5(model: TinyT5, folder: Path, tokenizer: Tokenizer) -> Path:
    """Write a checkpoint folder, the tokenizer without its ending: readers know that of T5."""
    model.model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder
