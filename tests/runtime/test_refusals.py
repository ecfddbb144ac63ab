"""What would go silently wrong is refused, before anything is touched, and says what to do."""

import copy
import pickle
import threading

import pytest
import torch
from transformers import TextIteratorStreamer

from tests import zoo
from tests.runtime.helpers import (
    compressed,
    generate,
    layers_of,
    logits,
    model_of,
    prompt,
    same,
)
from vicoset import compress
from vicoset.errors import (
    PlanError,
    PositionError,
    RuntimeStateError,
    UncertifiedModelError,
    UnsupportedError,
)

QWEN, LLAVA = "qwen2_5_vl", "llava"


def assert_goes_on(model, engine, inputs, expected):
    """The context works as before, and kept no record of what was refused."""
    count = len(engine.records)
    assert same(generate(model, inputs), expected)
    assert len(engine.records) == count + 1


OPTIONS = {
    "prefill_chunk_size": ({"prefill_chunk_size": 4}, "prefill_chunk_size.*drop it"),
    "offloaded": ({"cache_implementation": "offloaded"}, "'offloaded'.*'dynamic'"),
    "quantized": ({"cache_implementation": "quantized"}, "'quantized'.*'dynamic'"),
    "early exit": ({"assistant_early_exit": 2}, "assistant_early_exit.*assistant_model"),
}


@pytest.mark.parametrize("family", [QWEN, LLAVA])
@pytest.mark.parametrize("option", OPTIONS)
def test_ways_of_generating(family, option):
    model = model_of(family)
    inputs = prompt(model, family, 1)
    options, message = OPTIONS[option]
    with compressed(model, keep=4) as engine:
        expected = generate(model, inputs)
        with pytest.raises(UnsupportedError, match=message):
            generate(model, inputs, **options)
        assert_goes_on(model, engine, inputs, expected)


@pytest.mark.parametrize("prefix", ["dense", "replay"])
@pytest.mark.parametrize(
    "options", [{"prompt_lookup_num_tokens": 2}, {"cache_implementation": "static"}], ids=str
)
def test_prefixes_that_cannot(prefix, options):
    model = model_of(LLAVA)
    inputs = prompt(model, LLAVA, 1)
    with (
        compressed(model, keep=4, prefix=prefix),
        pytest.raises(UnsupportedError, match=r"need.* prefix='gathered'"),
    ):
        generate(model, inputs, output_logits=False, **options)


def test_a_compressed_assistant():
    model, assistant = model_of(LLAVA), model_of(LLAVA, "eager")
    inputs = prompt(model, LLAVA, 1)
    with (
        compressed(model, keep=4),
        compressed(assistant, keep=4),
        pytest.raises(UnsupportedError, match=r"Leave the assistant uncompressed"),
    ):
        generate(model, inputs, assistant_model=assistant, output_logits=False)


@pytest.mark.parametrize("family", [QWEN, LLAVA])
def test_embeddings_without_ids(family):
    model = model_of(family)
    inputs = prompt(model, family, 1)
    embeddings = model.get_input_embeddings()(inputs["input_ids"]).detach()
    with compressed(model, keep=4) as engine:
        expected = generate(model, inputs)
        with pytest.raises(UnsupportedError, match=r"without input_ids.*pass input_ids"):
            logits(model, {"inputs_embeds": embeddings})
        assert_goes_on(model, engine, inputs, expected)


@pytest.mark.parametrize("family", [QWEN, LLAVA])
def test_right_padding(family):
    model = model_of(family)
    inputs = prompt(model, family, 1)
    wrong = dict(inputs, attention_mask=inputs["attention_mask"].clone())
    wrong["attention_mask"][0, -2:] = 0
    with compressed(model, keep=4) as engine:
        expected = generate(model, inputs)
        with pytest.raises(UnsupportedError, match=r"padded on the right.*padding_side = 'left'"):
            logits(model, wrong)
        assert_goes_on(model, engine, inputs, expected)


@pytest.mark.parametrize("family", [QWEN, LLAVA])
def test_an_image_behind_a_prompt(family):
    model = model_of(family)
    inputs = prompt(model, family, 1)
    with compressed(model, keep=4) as engine:
        expected = generate(model, inputs)
        cache = expected.past_key_values
        before = [layer.keys.clone() for layer in cache.layers]
        mask = torch.ones(1, expected.sequences.shape[1] - 1 + inputs["input_ids"].shape[1])
        again = dict(inputs, attention_mask=mask.long())
        with pytest.raises(UnsupportedError, match=r"an image came on a cache.*Start a new cache"):
            generate(model, again, past_key_values=cache)
        assert all(
            torch.equal(layer.keys, keys) for layer, keys in zip(cache.layers, before, strict=True)
        )
        assert_goes_on(model, engine, inputs, expected)


@pytest.mark.parametrize("family", [QWEN, LLAVA])
@pytest.mark.parametrize("masked", [True, False])
def test_all_ids_on_a_compact_cache(family, masked):
    model = model_of(family)
    inputs = prompt(model, family, 1)
    with compressed(model, keep=4) as engine:
        expected = generate(model, inputs)
        whole = torch.cat([expected.sequences, torch.tensor([[20, 21]])], 1)
        turn = {"input_ids": whole}
        if masked:
            turn["attention_mask"] = torch.ones_like(whole)
        with pytest.raises(UnsupportedError, match=r"compact cache.*pass only the new input_ids"):
            generate(model, turn, past_key_values=expected.past_key_values)
        assert_goes_on(model, engine, inputs, expected)


def test_a_second_context_on_one_model():
    model = model_of(QWEN)
    inputs = prompt(model, QWEN, 1)
    with compressed(model, keep=4) as engine:
        expected = generate(model, inputs)
        with pytest.raises(RuntimeStateError, match=r"compressed already.*detach"):
            compress(model, keep=3).attach()
        assert_goes_on(model, engine, inputs, expected)


def test_two_threads_at_once():
    """The second is refused in the middle of the first one's prompt, which goes on unharmed."""
    model = model_of(QWEN)
    inputs = prompt(model, QWEN, 1)
    started, go, found = threading.Event(), threading.Event(), []

    def wait(*_):
        started.set()
        assert go.wait(60)

    with compressed(model, keep=4) as engine:
        expected = generate(model, inputs)
        # Behind the boundary, so that a prompt that is cut short would show.
        handle = layers_of(model)[3].register_forward_pre_hook(wait)
        thread = threading.Thread(target=lambda: found.append(generate(model, inputs)))
        thread.start()
        try:
            assert started.wait(60)
            for call in (generate, logits):
                with pytest.raises(RuntimeStateError, match=r"another thread runs it.*Wait for"):
                    call(model, inputs)
        finally:
            go.set()
            thread.join()
            handle.remove()
        assert same(found[0], expected)
        assert len(engine.records) == 2
        assert_goes_on(model, engine, inputs, expected)


def test_one_thread_after_the_other():
    """As the library's own streamers are used: generate in a thread, read in another."""
    model = model_of(LLAVA)
    inputs = prompt(model, LLAVA, 1)
    found = []
    with compressed(model, keep=4) as engine:
        expected = generate(model, inputs)
        streamer = TextIteratorStreamer(_Letters(), timeout=60)
        options = {"streamer": streamer, "max_new_tokens": 6}
        thread = threading.Thread(target=lambda: found.append(generate(model, inputs, **options)))
        thread.start()
        text = "".join(streamer)
        thread.join()
        assert same(found[0], expected)
        assert text == _Letters().decode(expected.sequences[0])
        assert_goes_on(model, engine, inputs, expected)


class _Letters:
    """A tokenizer of one letter a token."""

    def decode(self, ids, **_):
        return "".join(chr(0x100 + int(number)) for number in ids)


def test_of_threads_that_attach_at_once_one_wins():
    model = zoo.tiny(LLAVA)
    runs = [compress(model, keep=4) for _ in range(8)]
    line, won, lost = threading.Barrier(len(runs)), [], []

    def work(run):
        line.wait()
        try:
            won.append(run.attach())
        except RuntimeStateError as error:
            lost.append(error)

    threads = [threading.Thread(target=work, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 7)
    won[0].detach()
    assert "_vicoset_engine" not in vars(model)


def test_a_copy_of_a_compressed_model():
    model = model_of(LLAVA)
    with compressed(model, keep=4):
        for copy_it in (copy.deepcopy, pickle.dumps):
            with pytest.raises(RuntimeStateError, match=r"cannot be copied.*\.detach\(\)"):
                copy_it(model)
    assert same(*(generate(m, prompt(m, LLAVA, 1)) for m in (model, copy.deepcopy(model))))


@pytest.mark.parametrize("family", [QWEN, LLAVA])
def test_several_prompts_in_one_row(family):
    model = model_of(family)
    inputs = prompt(model, family, 1)
    length = inputs["input_ids"].shape[1]
    twice = {name: torch.cat([value] * 2, 1) for name, value in inputs.items() if name[0] in "im"}
    twice |= {name: torch.cat([v] * 2) for name, v in inputs.items() if "pixel" in name}
    if family == QWEN:
        twice["image_grid_thw"] = torch.cat([inputs["image_grid_thw"]] * 2)
        places, _ = model.model.get_rope_index(
            inputs["input_ids"], inputs["mm_token_type_ids"], inputs["image_grid_thw"]
        )
        places = torch.cat([places] * 2, 2)
    else:
        places = torch.arange(length).repeat(2)[None]
    with compressed(model, keep=4) as engine:
        expected = generate(model, inputs)
        with pytest.raises(UnsupportedError, match=rf"fall back at position {length}.*Unpack"):
            logits(model, {**twice, "position_ids": places})
        lengths = torch.tensor([0, length, 2 * length])
        with pytest.raises(UnsupportedError, match=r"is packed \(cu_seq_lens\).*Unpack"):
            logits(model, twice, cu_seq_lens_q=lengths, cu_seq_lens_k=lengths)
        assert_goes_on(model, engine, inputs, expected)


def test_labels_of_a_prompt_that_is_compressed():
    model = model_of(LLAVA)
    inputs = prompt(model, LLAVA, 1)
    labels = inputs["input_ids"]
    plain = model(**inputs, labels=labels).loss
    with compressed(model, keep=4) as engine:
        with pytest.raises(UnsupportedError, match=r"labels came with .*no longer align"):
            model(**inputs, labels=labels)
        assert engine.records == []
    with compressed(model, keep=1.0):
        assert torch.equal(model(**inputs, labels=labels).loss, plain)


@pytest.mark.parametrize("option", OPTIONS)
def test_ways_of_generating_that_the_model_s_own_config_asks_for(option, monkeypatch):
    model = model_of(LLAVA)
    options, message = OPTIONS[option]
    for name, value in options.items():
        monkeypatch.setattr(model.generation_config, name, value)
    with compressed(model, keep=4), pytest.raises(UnsupportedError, match=message):
        generate(model, prompt(model, LLAVA, 1))


def test_the_decoder_past_the_model():
    model = model_of(LLAVA)
    inputs = prompt(model, LLAVA, 1)
    with compressed(model, keep=4) as engine:
        expected = generate(model, inputs)
        for past in (model.model, model.forward):
            with pytest.raises(RuntimeStateError, match=r"past the model's own forward.*generate"):
                past(**inputs)
        assert_goes_on(model, engine, inputs, expected)


def test_plans_that_no_block_could_run():
    model = model_of(QWEN)
    with pytest.raises(PlanError, match=r"p = 5.*5 blocks.*0 to 4"):
        compress(model, "gmc@5")
    with pytest.raises(PlanError, match=r"prefix='gather'.*'gathered'"):
        compress(model, prefix="gather")


def test_a_family_that_nobody_certified(monkeypatch):
    model = zoo.tiny(LLAVA)
    inputs = prompt(model, LLAVA, 1)
    monkeypatch.setattr(model.config, "model_type", "llavva", raising=False)
    with pytest.raises(UncertifiedModelError, match=r"closest certified family is LLaVA"):
        compress(model)
    with compress(model, "gmc-h2", 4, allow_uncertified=True) as run:
        logits(model, inputs)
    assert run.last.kept == 4


@pytest.mark.parametrize("family", ["gemma3", "aya_vision"])
def test_a_window_shorter_than_the_text(family):
    model = zoo.tiny(family, sliding_window=144)
    short = prompt(model, family, 1)
    long = prompt(model, family, [9] if family == "gemma3" else [3])
    with compressed(model, keep=4) as engine:
        length = short["input_ids"].shape[1]
        generate(model, short, 144 - length)
        with pytest.raises(UnsupportedError, match=r"sees 144 positions.*Keep prompt and answer"):
            generate(model, short, 144 - length + 3)
        count = len(engine.records)
        with pytest.raises(UnsupportedError, match=r"sees 144 positions.* text has"):
            generate(model, long)
        assert len(engine.records) == count
    # What keeps everything is the model's own path, whose windows are its own matter.
    plain = generate(model, long)
    with compressed(model, keep=1.0):
        assert same(generate(model, long), plain)


def test_linear_attention_before_the_boundary():
    model = zoo.tiny(QWEN)
    model.config.text_config.layer_types = ["full_attention"] * 2 + ["linear_attention"] * 3
    compress(model, "gmc@1")
    with pytest.raises(UnsupportedError, match=r"linear_attention.*boundaries below 2"):
        compress(model, "gmc@3")


@pytest.mark.parametrize("family", [QWEN, "qwen3_vl"])
def test_positions_that_do_not_show_the_grid(family):
    model = model_of(family)
    inputs = prompt(model, family, 1)
    flat = {name: value for name, value in inputs.items() if name != "mm_token_type_ids"}
    with compressed(model, keep=4) as engine:
        expected = generate(model, inputs)
        with pytest.raises(PositionError, match=r"one-dimensional.*Pass mm_token_type_ids"):
            generate(model, flat)
        assert_goes_on(model, engine, inputs, expected)


def test_flex_attention_and_foreign_caches():
    model = zoo.tiny(LLAVA)
    model.model.language_model.config._attn_implementation_internal = "flex_attention"
    with pytest.raises(UnsupportedError, match=r"flex attention.*attn_implementation='sdpa'"):
        compress(model)
    model = model_of(LLAVA)
    inputs = prompt(model, LLAVA, 1)

    class Foreign:
        def get_seq_length(self, layer=0):
            return 0

    with compressed(model, keep=4), pytest.raises(UnsupportedError, match=r"is a Foreign"):
        logits(model, inputs, past_key_values=Foreign())
