"""Records as sealed JSON lines: what is in them, and that no byte of them can change unseen."""

import hashlib
import json

import pytest
import torch

from tests.runtime.helpers import (
    ONE_EACH,
    ROWS,
    compressed,
    generate,
    logits,
    model_of,
    prompt,
    two_stages,
)
from vicoset import compress
from vicoset.core.settings import Settings
from vicoset.errors import JournalError, PlanError, RuntimeStateError, UnreadableError
from vicoset.plan import Keep, digest_of_content, plan_named
from vicoset.runtime import record_lines
from vicoset.runtime.record_json import fingerprints, plain

CASES = pytest.mark.parametrize(("family", "attn"), ONE_EACH)


def body(model, inputs, plan="gmc-h2", keep=5, **options):
    with compressed(model, plan, keep, **options) as engine:
        generate(model, inputs, 2)
    return [record.to_json() for record in engine.records]


@CASES
def test_a_line_reads_back_to_what_was_recorded(family, attn, tmp_path):
    model = model_of(family, attn)
    path = tmp_path / "records.jsonl"
    with compress(model, keep=5, record_to=path) as run:
        generate(model, prompt(model, family, ROWS), 2)
    lines = path.read_bytes().split(b"\n")
    assert len(lines) == 4 and lines[-1] == b""
    for line, record in zip(lines[:-1], run.records, strict=True):
        assert record_lines.sealed(line)
        found = record_lines.read(line)
        expected = json.loads(json.dumps(record.to_json()))
        assert found == expected
        assert found["schema"] == 1 and found["plan"]["name"] == "gmc-h2"
        assert found["digest"] == run.records[0].digest and found["keep"] == {"tokens": 5}


@CASES
def test_places_images_and_positions_are_those_of_the_prompt(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, ROWS)
    seen = {}
    from vicoset.models.families import decoder_of

    def look(module, args, kwargs):
        seen.setdefault("positions", kwargs.get("position_ids"))

    handle = decoder_of(model).register_forward_pre_hook(look, with_kwargs=True)
    scenes = []
    rows = body(model, inputs, watch=lambda done: scenes.append(done.scene))
    handle.remove()
    for row, found in enumerate(rows[:2]):
        (stage,) = found["stages"]
        padding = int((inputs["attention_mask"][row] == 0).sum())
        spots = scenes[row].visual
        assert bool((inputs["input_ids"][row, spots] == model.config.image_token_id).all())
        assert len(spots) == found["tokens"]
        kept = spots[stage["indices"]]
        assert stage["places"] == (kept - padding).tolist()
        positions = seen["positions"]
        if positions is None:
            native = kept[None]
        elif positions.ndim == 3:
            native = positions[-3:, row][:, kept]
        else:
            native = positions[min(row, len(positions) - 1)][None, kept]
        assert stage["positions"] == native.tolist()
        runs = [run for image in found["images"] for run in image["runs"]]
        whole = [place for first, count in runs for place in range(first, first + count)]
        assert whole == (spots - padding).tolist()
        sizes = [image["tokens"] for image in found["images"]]
        owner = [number for number, size in enumerate(sizes) for _ in range(size)]
        assert owner == scenes[row].image_ids.tolist()
        assert stage["image_ids"] == [owner[index] for index in stage["indices"]]
        for image in found["images"]:
            assert ("grid" in image) != ("coordinates" in image)
            if "grid" in image:
                assert torch.tensor(image["grid"]).prod() == image["tokens"]
    assert rows[2]["images"] == [] and rows[2]["stages"] == []


def test_indices_of_a_later_stage_are_the_prompt_s():
    model = model_of("llava")
    (found,) = body(model, prompt(model, "llava", 1), two_stages(), 9)
    first, second = found["stages"]
    assert set(second["indices"]) < set(first["indices"])
    assert dict(zip(first["indices"], first["places"], strict=True)).items() >= {
        (index, place) for index, place in zip(second["indices"], second["places"], strict=True)
    }
    assert first["tokens"] == found["tokens"] and second["tokens"] == first["kept"]


@pytest.mark.parametrize("prefix", ["gathered", "dense", "replay"])
def test_bytes_of_the_cache_follow_from_its_entries(prefix):
    model = model_of("qwen2_5_vl")
    for found in body(model, prompt(model, "qwen2_5_vl", [1, 2]), prefix=prefix):
        kv = found["kv"]
        if prefix == "replay":
            assert kv == {"bytes": 0, "full_bytes": 0}
            continue
        each = list(zip(kv["entries"], kv["entry_bytes"], strict=True))
        assert kv["bytes"] == sum(count * size for count, size in each)
        assert kv["full_bytes"] == sum(kv["length"] * size for _, size in each)
        early = kv["length"] if prefix == "dense" else kv["compact"][0]
        assert kv["entries"] == [early] * 2 + [kv["compact"][0]] * 3


def test_digests_follow_from_what_the_line_says():
    model = model_of("llava")
    settings = Settings(terminal_weight=1 / 3)
    found = body(model, prompt(model, "llava", 1), settings=settings)[0]
    found = json.loads(json.dumps(found))
    assert Settings(**found["settings"]) == settings
    plan = plan_named("gmc-h2", 5)
    assert digest_of_content(found["plan"]) == plan.digest()
    text = f"{plan.digest()} {Settings(**found['settings'])!r}"
    assert found["digest"] == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_audits_say_more_and_more():
    model = model_of("llava")
    inputs = prompt(model, "llava", 1)
    none, light, full = (body(model, inputs, audit=a)[0] for a in ("none", "light", "full"))
    stages = [found["stages"][0] for found in (none, light, full)]
    assert "ratio" not in stages[0]["evidence"] and "ratio" in stages[1]["evidence"]
    assert "realised" not in stages[1] and len(stages[2]["realised"]["carrier"]) == 36
    assert stages[0]["indices"] == stages[1]["indices"] == stages[2]["indices"]
    assert stages[1]["evidence"] == stages[2]["evidence"]
    assert all(stage["seconds"] > 0 for stage in stages)
    with pytest.raises(PlanError, match="allowed are 'none', 'light', 'full'"):
        compress(model, audit="heavy")


def test_a_run_writes_what_the_caller_knows(tmp_path):
    model = model_of("llava")
    with compress(model, keep=5) as run:
        logits(model, prompt(model, "llava", [1, 1]))
    path = tmp_path / "records.jsonl"
    run.write(path, [{"sample": "a", "score": 1.0}, {"sample": "b"}])
    found = [record_lines.read(line) for line in path.read_bytes().splitlines()]
    assert [record["about"] for record in found] == [{"sample": "a", "score": 1.0}, {"sample": "b"}]
    with pytest.raises(RuntimeStateError, match="1 entries for 2 records"):
        run.write(path, [{}])


def test_a_budget_by_coverage_is_recorded_like_any_other():
    model = model_of("llava")
    found = body(model, prompt(model, "llava", 1), keep=Keep(coverage=0.6, max=20))[0]
    assert found["keep"] == {"coverage": 0.6, "max": 20}
    evidence = found["stages"][0]["evidence"]
    assert evidence["target"] == 0.6 and evidence["reached"] is True


def test_numbers_read_back_exactly():
    single = torch.randn(500) * 10.0 ** torch.randint(-30, 30, (500,))
    assert torch.equal(torch.tensor(plain(single)), single)
    double = torch.randn(50, dtype=torch.float64) / 3
    assert torch.equal(torch.tensor(plain(double), dtype=torch.float64), double)
    assert plain(torch.tensor([float("nan"), float("inf"), 1.0])) == [None, None, 1.0]
    assert plain({"a": (1, True, None, "x", torch.tensor(3))}) == {"a": [1, True, None, "x", 3]}


def test_any_other_byte_breaks_the_seal():
    line = record_lines.seal({"a": [1, 2.5], "b": "x"})[:-1]
    assert record_lines.sealed(line)
    for place in range(len(line)):
        for bit in range(8):
            other = bytearray(line)
            other[place] ^= 1 << bit
            assert not record_lines.sealed(bytes(other))
    assert not record_lines.sealed(line + b" ") and not record_lines.sealed(b"")


@pytest.mark.parametrize("line", [b"", b"[]", b"{", b'{"a":NaN}', b"\xff", b"[" * 100_000])
def test_lines_that_hold_no_object_are_refused(line):
    with pytest.raises(UnreadableError):
        record_lines.read(line)


def test_fingerprints_name_the_field_that_changed():
    model = model_of("llava")
    found = body(model, prompt(model, "llava", 1))[0]
    assert fingerprints(found) == found["fields"]
    found["stages"][0]["positions"][0][2] += 1
    changed = {k for k, v in fingerprints(found).items() if v != found["fields"][k]}
    assert changed == {"stages[0].positions"}


def test_a_place_for_records_that_cannot_be_is_refused_before_anything_runs(tmp_path):
    model = model_of("llava")
    (tmp_path / "file").write_text("")
    for place, why in [
        (tmp_path, "is a directory"),
        (tmp_path / "none" / "records.jsonl", "lies in .*none, which is no directory"),
        (tmp_path / "file" / "records.jsonl", "lies in .*file, which is no directory"),
    ]:
        with pytest.raises(JournalError, match=rf"{why}; allowed is a file in a directory"):
            compress(model, keep=5, record_to=place)
    compress(model, keep=5, record_to=tmp_path / "records.jsonl")
    assert not (tmp_path / "records.jsonl").exists()
