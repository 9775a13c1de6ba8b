"""A candidate of a batch as a model again."""

from __future__ import annotations

from dse.schema.blocks import BLOCK_SIZES
from dse.schema.dtypes import DTYPES
from dse.schema.model import BlockSpec, Model
from dse.space.batches import whole_training
from dse.space.candidates import CandidateBatch


def model_at(batch: CandidateBatch, i: int, name: str, training_tokens: float | None) -> Model:
    """The shape of candidate `i`, its weights kept in 16 bits; what it does not have is left
    out."""
    blocks = tuple(
        BlockSpec(
            block.kind,
            int(block.count[i]),
            {
                size: _plain(values[i])
                for size, values in block.sizes.items()
                if values[i] or size in BLOCK_SIZES[block.kind]
            },
        )
        for block in batch.blocks
        if block.count[i] > 0
    )
    modules, trained_in = batch.prediction_layers, DTYPES[batch.trained_in[i]]
    said = trained_in != "bf16" and whole_training(trained_in) == batch.trained_whole[i]
    return Model(
        id=name,
        name=name,
        hidden_size=int(batch.hidden_size[i]),
        vocab_size=int(batch.vocab_size[i]),
        tied_embeddings=bool(batch.tied_embeddings[i]),
        blocks=blocks,
        weight_dtypes=dict.fromkeys(batch.weight_dtype, "bf16"),
        kv_dtype=None,
        training_tokens=training_tokens,
        source="searched",
        prediction_layers=None if modules is None else int(modules[i]),
        trained_in=trained_in if said else None,
    )


def _plain(value: float) -> float | int:
    return int(value) if float(value).is_integer() else float(value)
