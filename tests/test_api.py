"""What a new user may hand to compress, and what he is told."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests import zoo
from vicoset import compress
from vicoset.core.settings import Settings
from vicoset.errors import (
    BudgetError,
    PlanError,
    SettingError,
    UncertifiedModelError,
    UnknownNameError,
    UnsupportedError,
)


@pytest.fixture(scope="module")
def model() -> Any:
    return zoo.tiny("llava")


@pytest.mark.parametrize(
    ("plan", "error", "message"),
    [
        ("gmc-h3", UnknownNameError, "Did you mean 'gmc-h2'"),
        ("GMC-H2", UnknownNameError, "Did you mean 'gmc-h2'"),
        ("gcm@2", UnknownNameError, "Did you mean 'gmc'"),
        ("gmc+drp@2", UnknownNameError, "Did you mean 'drop'"),
        ("gmc", PlanError, "names no boundary.*Write gmc@2"),
        ("gmc@-1", PlanError, "names no boundary"),
        ("gmc@2.5", PlanError, "names no boundary"),
        ("gmc@5", PlanError, "p = 5, and this model has 5 blocks.*0 to 4"),
        ("", UnknownNameError, "allowed are .*gmc-h2"),
        (None, PlanError, "plan=None is a NoneType; allowed are a name such as 'gmc-h2'"),
        (2, PlanError, "plan=2 is a int"),
    ],
)
def test_plans(model: Any, plan: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        compress(model, plan)


def test_stages_are_no_plan_yet(model: Any) -> None:
    stages = compress(model, "gmc@2").plan.stages
    for given in (stages, list(stages), stages[0]):
        with pytest.raises(PlanError, match=r"Stages make one as Plan\('mine', \(stage"):
            compress(model, given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "keep", [0, -1, True, False, "12", None, 0.0, -0.5, 1.5, 128.0, float("nan"), (3,)]
)
def test_budgets(model: Any, keep: Any) -> None:
    with pytest.raises(BudgetError, match="allowed are"):
        compress(model, keep=keep)


@pytest.mark.parametrize("prefix", ["gatherd", "Gathered", "", None, 1])
def test_prefixes(model: Any, prefix: Any) -> None:
    with pytest.raises(PlanError, match="'gathered', 'dense', 'replay'"):
        compress(model, prefix=prefix)


@pytest.mark.parametrize("settings", [{"max_queries": 3}, 3, Settings])
def test_settings(model: Any, settings: Any) -> None:
    with pytest.raises(SettingError, match=r"Write settings=Settings\(max_queries=64\)"):
        compress(model, settings=settings)


@pytest.mark.parametrize("thing", [None, "Some/Model-7B", 3, {}])
def test_what_is_no_model(thing: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"allowed is a loaded model. Pass load\("):
        compress(thing)


class Adapter(nn.Module):
    """As adapter libraries wrap a model: attributes reach through, forwards go past hooks."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def __getattr__(self, name: str) -> Any:
        if name == "base":
            return super().__getattr__(name)
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.base, name)

    def get_base_model(self) -> nn.Module:
        return self.base


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (nn.DataParallel, r"DataParallel is a parallel wrapper.*Pass model\.module"),
        (Adapter, r"Adapter is an adapter.*Pass model\.get_base_model\(\)"),
        (
            lambda model: torch.compile(model, backend="eager"),
            r"is a torch\.compile of the model.*Pass model\._orig_mod",
        ),
        (lambda model: model.model, r"has no generate.*the model that this one is a part of"),
    ],
    ids=["parallel", "adapter", "compiled", "inner"],
)
def test_what_calls_the_model_past_its_hooks(model: Any, wrap: Any, message: str) -> None:
    """Refused, because nothing would be compressed and nobody would notice."""
    with pytest.raises(UnsupportedError, match=message):
        compress(wrap(model), keep=4).attach()
    assert "_vicoset_engine" not in vars(model)


@pytest.mark.parametrize("allow", [False, True])
def test_a_model_that_reads_text_only(allow: bool) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50, num_hidden_layers=4, **sizes))
    with pytest.raises(UncertifiedModelError, match=r"names no image.*reads text only"):
        compress(model, allow_uncertified=allow)


@pytest.mark.parametrize("family", zoo.FAMILIES)
def test_every_certified_model_may_be_handed_over(family: str) -> None:
    assert compress(zoo.tiny(family), "gmc-h2", 4).last is None
