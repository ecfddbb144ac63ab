"""What the runtime sees of a prompt, collected from a real run of the model."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from tests.zoo_parts import PAD
from vicoset.models.families import decoder_of, family_of
from vicoset.models.features import lengths_from, watch_image_features
from vicoset.models.layout import Layout, PromptInputs


def observe(model: Any, inputs: dict[str, Any], how: str = "forward") -> PromptInputs:
    """The prompt as a hook on the text decoder would describe it."""
    return _run(model, inputs, how, {})[0]


def layouts(
    model: Any, inputs: dict[str, Any], how: str = "forward", **options: Any
) -> list[Layout | None]:
    """The layouts of a prompt, made while the model is watched; `how` is forward or generate."""
    return _run(model, inputs, how, options)[1]


def _run(
    model: Any, inputs: dict[str, Any], how: str, options: dict[str, Any]
) -> tuple[PromptInputs, list[Layout | None]]:
    top: dict[str, Any] = {}
    decoder: dict[str, Any] = {}

    def keep(store: dict[str, Any]) -> Any:
        def hook(_: Any, args: Any, kwargs: dict[str, Any]) -> None:
            if not store:
                store.update(kwargs)

        return hook

    hooks = [
        model.register_forward_pre_hook(keep(top), with_kwargs=True),
        decoder_of(model).register_forward_pre_hook(keep(decoder), with_kwargs=True),
    ]
    try:
        with watch_image_features(model) as watch, torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if how == "forward":
                model(**inputs)
            else:
                model.generate(**inputs, max_new_tokens=2, do_sample=False, **options)
            repeat = options.get("num_beams", 1)
            prompt = PromptInputs(
                model=model,
                input_ids=inputs["input_ids"].repeat_interleave(repeat, 0),
                attended=inputs["attention_mask"].bool().repeat_interleave(repeat, 0),
                position_ids=decoder.get("position_ids"),
                image_lengths=lengths_from(top) or watch.lengths,
                kwargs=top,
            )
            return prompt, family_of(model).layouts(prompt)
    finally:
        for hook in hooks:
            hook.remove()


def words(inputs: dict[str, Any], row: int) -> torch.Tensor:
    """Positions of text in a row of the zoo: every marker and placeholder has an id from 150 on."""
    ids = inputs["input_ids"][row]
    return ((ids < 150) & (ids != PAD)).nonzero().flatten()


def cells(height: int, width: int) -> list[list[float]]:
    """Cell centres of a grid, spelled out."""
    return [[(y + 0.5) / height, (x + 0.5) / width] for y in range(height) for x in range(width)]


def close(actual: torch.Tensor, expected: list[list[float]]) -> None:
    """Coordinates equal up to rounding, in shape as well."""
    torch.testing.assert_close(actual, torch.tensor(expected), rtol=0, atol=1e-6)
