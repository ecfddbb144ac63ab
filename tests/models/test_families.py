"""The registry: known, unknown and refused models, the fallback, and the facts about blocks."""

import inspect
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests import zoo
from tests.models.observe import cells, close
from tests.zoo_parts import IMAGE, VIDEO
from vicoset.errors import UncertifiedModelError, UnsupportedError
from vicoset.models import families
from vicoset.models.blocks import kinds, recurrent, refusals, spelled, windows
from vicoset.models.families import FAMILIES, GENERIC, REFUSED, closest, decoder_of, family_of
from vicoset.models.layout import PromptInputs


def model_of(kind, **more):
    return SimpleNamespace(config=SimpleNamespace(model_type=kind, **more))


def test_every_certified_model_type_is_in_the_zoo():
    built = {zoo.tiny(name).config.model_type for name in zoo.FAMILIES}
    certified = {kind for family in FAMILIES if family.certified for kind in family.model_types}
    assert built == certified


def test_model_types_and_names_are_unique():
    types = [kind for family in FAMILIES for kind in family.model_types] + list(REFUSED)
    names = [family.name for family in FAMILIES]
    assert len(set(types)) == len(types) and len(set(names)) == len(names)
    assert all(family.notes for family in FAMILIES)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("llava_next_video", "LLaVA-NeXT"),
        ("qwen4_vl", "Qwen"),
        ("internvl5", "InternVL"),
        ("gemma3n", "Gemma3"),
        ("glm46v", "GLM-4.1V"),
    ],
)
def test_an_unknown_model_is_told_the_closest_family(kind, name):
    with pytest.raises(
        UncertifiedModelError, match=f"closest certified family is {name}"
    ) as caught:
        family_of(model_of(kind, image_token_id=3))
    assert "allow_uncertified=True" in str(caught.value) and kind in str(caught.value)
    assert closest(kind).certified


def test_known_but_uncertified_keeps_its_layout():
    with pytest.raises(UncertifiedModelError):
        family_of(model_of("qwen3_5"))
    assert family_of(model_of("qwen3_5"), allow_uncertified=True).name == "Qwen3.5"


@pytest.mark.parametrize("kind", sorted(REFUSED))
@pytest.mark.parametrize("anyway", [False, True])
def test_impossible_models_stay_refused(kind, anyway):
    with pytest.raises(UnsupportedError, match="cannot be compressed") as caught:
        family_of(model_of(kind, image_token_id=3), allow_uncertified=anyway)
    assert REFUSED[kind] in str(caught.value)


def test_no_token_id_no_fallback():
    with pytest.raises(UncertifiedModelError, match="no image or video token id"):
        family_of(model_of("some_vlm"), allow_uncertified=True)


@pytest.mark.parametrize(
    ("lengths", "expected", "images"),
    [
        ([9, 5], cells(3, 3) + cells(1, 5), 2),
        (None, cells(1, 14), 1),
        ([4, 4], cells(1, 14), 1),  # lengths that do not fit: the run is the image
    ],
)
def test_fallback(lengths, expected, images):
    model = model_of("some_vlm", image_token_id=IMAGE, video_token_id=VIDEO)
    assert family_of(model, allow_uncertified=True) is GENERIC
    assert GENERIC.visual_ids(model.config) == (IMAGE, VIDEO)
    ids = torch.tensor([[0, 5, *[IMAGE] * 14, 6], [0, 0, *[5] * 15]])
    attended = ids != 0
    found = GENERIC.layouts(PromptInputs(model, ids, attended, None, lengths))
    close(found[0].coordinates, expected)
    assert found[0].images == images
    assert found[0].text.tolist() == [1, 16]
    assert found[1] is None


def config_of(**text):
    return SimpleNamespace(text_config=SimpleNamespace(num_hidden_layers=6, **text))


def test_recurrent_blocks_are_named():
    layers = ["linear_attention"] * 3 + ["full_attention", "linear_attention", "full_attention"]
    config = config_of(layer_types=layers)
    assert recurrent(config) == {"linear_attention": [0, 1, 2, 4]}
    assert refusals(config, 2)[0].startswith("blocks 0 to 2 are linear_attention")
    assert "no boundary comes before" in refusals(config)[0]
    late = config_of(layer_types=["full_attention"] * 4 + ["conv", "full_attention"])
    assert refusals(late, 3) == []
    assert refusals(late, 4)[0].startswith("block 4 is conv")
    assert "boundaries below 4" in refusals(late)[0]


def test_windows_of_blocks():
    layers = ["sliding_attention", "full_attention", "chunked_attention"] * 2
    config = config_of(layer_types=layers, sliding_window=10, attention_chunk_size=20)
    assert windows(config) == {0: 10, 2: 20, 3: 10, 5: 20}
    assert windows(config_of(layer_types=None, sliding_window=7)) == dict.fromkeys(range(6), 7)
    assert windows(config_of(sliding_window=7, use_sliding_window=False)) == {}
    assert windows(config_of(sliding_window=None)) == {}
    assert kinds(config_of()) == ["full_attention"] * 6


@pytest.mark.parametrize(
    ("family", "text", "expected"),
    [
        ("llava_mistral", {"sliding_window": 64}, dict.fromkeys(range(5), 64)),
        ("gemma3", {}, {0: 2048, 1: 2048, 3: 2048, 4: 2048}),
        ("llama4", {}, {0: 2048, 1: 2048, 2: 2048, 4: 2048}),
        ("qwen2_5_vl", {"sliding_window": 32}, {}),
        ("llava", {}, {}),
    ],
)
def test_windows_of_real_configurations(family, text, expected):
    model = zoo.tiny(family, **text)
    assert family_of(model).windows(model.config) == expected


def test_spelled():
    assert spelled([3]) == "block 3"
    assert spelled([0, 1, 2, 4, 6, 7]) == "blocks 0 to 2, 4, 6 to 7"


def test_a_model_without_layers_has_no_decoder():
    with pytest.raises(UnsupportedError, match="no text decoder"):
        decoder_of(nn.Linear(2, 2))


def test_a_nested_decoder_is_found():
    outer, middle, inner = nn.Module(), nn.Module(), nn.Module()
    inner.layers = nn.ModuleList([nn.Identity()])
    middle.model, outer.language_model = inner, middle
    assert decoder_of(outer) is inner


def test_importing_the_families_loads_no_model_code():
    code = "import sys, vicoset.models.families; print('transformers' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout.strip(), result.stderr) == ("False", "")
    assert "transformers" not in inspect.getsource(families)
