"""Records that were written stand; whatever is changed in one is found, and named."""

import json

import pytest

from tests.audit.verify.tamper import UNSEEN, leaves, place, problems, put, recorded
from tests.runtime.helpers import (
    ONE_EACH,
    ROWS,
    compressed,
    generate,
    model_of,
    prompt,
    two_stages,
)
from vicoset.audit.verify import verify_file, verify_line
from vicoset.audit.verify.schema import OBJECTS
from vicoset.errors import VicosetError
from vicoset.plan import PRESETS, Keep
from vicoset.runtime import record_lines

PLANS = [("gmc-h2", 5), ("two", 9), ("random+drop@0", 7), ("gmc-l16", 1.0)]


@pytest.fixture(scope="module")
def body():
    return recorded("qwen2_5_vl", "gmc@2", 5, 2)


@pytest.fixture(scope="module")
def staged():
    return recorded("llava", two_stages(), 9, prefix="dense")


@pytest.mark.parametrize(("family", "attn"), ONE_EACH)
def test_records_of_every_family_stand(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, ROWS)
    for name, keep in PLANS:
        plan = two_stages() if name == "two" else name
        with compressed(model, plan, keep, audit="full") as engine:
            generate(model, inputs, 2)
        for record in engine.records:
            assert problems(record.to_json(), renewed=False) == []


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen3_vl", "glm4v"])
def test_records_of_films_stand(family):
    model = model_of(family)
    with compressed(model, "gmc@2", 9) as engine:
        generate(model, prompt(model, family, 0, films=1), 2)
    found = json.loads(json.dumps(engine.records[0].to_json()))
    assert len(found["images"][0]["grid"]) == 3 and problems(found) == []
    moved = put(found, ("stages", 0, "positions", 1, 8), 3)
    assert any("stages[0].positions[" in text for text in problems(moved))


@pytest.mark.parametrize("prefix", ["gathered", "dense", "replay"])
@pytest.mark.parametrize("audit", ["none", "light", "full"])
def test_records_of_every_mode_and_audit_stand(prefix, audit):
    found = recorded("llava", two_stages(), 9, [1, 2], prefix=prefix, audit=audit)
    assert problems(found, renewed=False) == []


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl"])
def test_packed_records_say_where_tokens_came_from(family):
    found = recorded(family, two_stages(), 9, positions="packed")
    assert found["positions"] == "packed" and problems(found, renewed=False) == []
    wrong = put(found, ("stages", 0, "positions", 0, 2), 3)
    assert any("stages[0].positions[0][2]" in text for text in problems(wrong))
    assert any("positions" in text for text in problems(put(found, ("positions",), "shuffled")))


WAYS = {
    "beams": {"num_beams": 2},
    "static": {"cache_implementation": "static"},
    "lookup": {"prompt_lookup_num_tokens": 2},
    "no cache": {"use_cache": False},
}


@pytest.mark.parametrize("way", WAYS)
def test_records_of_every_way_to_generate_stand(way):
    model = model_of("llava")
    inputs = prompt(model, "llava", 1 if way == "lookup" else [1, 2])
    with compressed(model, "gmc@1", 40 if way == "beams" else 3, audit="full") as engine:
        generate(model, inputs, 3, **WAYS[way])
    for record in engine.records:
        assert problems(record.to_json(), renewed=False) == []


def test_records_of_every_preset_stand():
    """Progressive plans have stages with budgets of their own, which follow from N and K."""
    model = model_of("llava")
    inputs, done = prompt(model, "llava", 2), []
    for name in PRESETS:
        try:
            with compressed(model, name, 12, audit="full") as engine:
                generate(model, inputs, 1)
        except VicosetError:  # needs another model, or a tower's own parts
            continue
        for record in engine.records:
            assert problems(record.to_json(), renewed=False) == [], name
        done.append(name)
    assert {"gmc-h1", "fastv-h2", "pyramiddrop"} <= set(done) and len(done) > 6


@pytest.mark.parametrize("keep", [Keep(coverage=0.7), Keep(coverage=0.99, max=6), Keep(tokens=500)])
def test_records_of_other_budgets_stand(keep):
    found = recorded("qwen2_5_vl", "gmc@1", keep, 2)
    assert problems(found, renewed=False) == []
    if found["stages"] and keep.coverage == 0.7:
        wrong = put(found, ("stages", 0, "evidence", "reached"), False)
        assert any("evidence.reached" in text for text in problems(wrong))


@pytest.mark.parametrize("which", ["body", "staged"])
def test_a_changed_number_is_found_and_named_although_the_seal_is_right(which, request):
    """Every number, text and truth of a record, changed alone and sealed again."""
    body = request.getfixturevalue(which)
    assert problems(body) == []
    unnamed = []
    for path, value in leaves(body):
        if path[0] == "fields":
            continue
        for other in _others(value):
            found = problems(put(body, path, other))
            if place(path) in UNSEEN:
                continue
            assert found, path
            named = " ".join(found)
            last = [part for part in path if isinstance(part, str)][-1]
            follows = FOLLOWS.get(str(path[0]), last)
            if last not in named and follows not in named:
                unnamed.append((path, found))
    assert unnamed == []


# What is named in the place of a number that others follow from.
FOLLOWS = {"plan": "plan", "settings": "settings", "keep": "requested", "depth": "work"}
FOLLOWS |= {"images": "places", "kv": "kv.bytes"}


def _others(value):
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, value + 1000]
    if isinstance(value, float):
        return [value * 1.01 + 1e-3, -value - 1]
    return [f"{value}x"] if isinstance(value, str) else [1]


def test_the_place_in_a_list_is_named(body):
    wrong = put(body, ("stages", 0, "indices", 2), body["stages"][0]["indices"][1])
    assert "stages[0].indices[2]: " in " ".join(problems(wrong))
    wrong = put(body, ("stages", 0, "places", 3), 0)
    spot = body["stages"][0]["places"][3]
    assert f"stages[0].places[3]: 0, recomputed {spot} from indices[3]" in problems(wrong)
    own = body["stages"][0]["positions"][2][4]
    wrong = put(body, ("stages", 0, "positions", 2, 4), own + 7)
    assert f"stages[0].positions[2][4]: {own + 7}, recomputed {own}" in problems(wrong)
    wrong = put(body, ("work",), body["work"] + 1)
    given = f"work: {body['work'] + 1}, recomputed {body['work']} from stages, tokens and depth"
    assert given in problems(wrong)


def test_a_whole_image_that_is_moved_is_found(body):
    """Positions that agree with their grid and with each other, and not with the sequence."""
    stage = body["stages"][0]
    moved = [[position + 3 for position in axis] for axis in stage["positions"]]
    found = problems(put(body, ("stages", 0, "positions"), moved))
    assert found and all("positions" in text for text in found)


def test_without_renewed_fingerprints_the_field_is_named(body):
    for path in (("about", "x"), ("stages", 0, "seconds"), ("device",), ("stages", 0, "realised")):
        wrong = put(body, path, "other")
        where = "stages[0]." + path[2] if len(path) > 2 else path[0]
        assert any(text.startswith(f"{where}: ") for text in problems(wrong, renewed=False)), path


def test_missing_and_further_fields_are_named(staged):
    for name in staged:
        wrong = {key: value for key, value in staged.items() if key != name}
        if name == "fields":
            assert problems(wrong, renewed=False)
            continue
        assert any(name in text for text in problems(wrong)), name
    assert any("colour" in text for text in problems({**staged, "colour": 1}))
    wrong = put(staged, ("stages", 1, "colour"), 1)
    assert any("stages[1].colour" in text for text in problems(wrong))


def test_another_spelling_is_no_record(staged):
    front = record_lines.canonical(staged)[:-1].replace(b'"tokens":36', b'"tokens": 36', 1)
    spelled = record_lines.seal({"a": 1})
    body = json.loads(front + b"}")
    assert body == staged and spelled
    import hashlib

    line = front + b',"sha256":"' + hashlib.sha256(front).hexdigest().encode() + b'"}'
    assert [p.where for p in verify_line(line).problems] == ["line"]
    twice = front.replace(b'"tokens": 36', b'"tokens":35,"tokens":36', 1)
    line = twice + b',"sha256":"' + hashlib.sha256(twice).hexdigest().encode() + b'"}'
    assert [p.where for p in verify_line(line).problems] == ["line"]


def test_files_are_read_line_by_line(tmp_path, body, staged):
    path = tmp_path / "records.jsonl"
    record_lines.append(path, [body, staged])
    assert [one.stands for one in verify_file(path)] == [True, True]
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    assert [one.stands for one in verify_file(path)] == [True, False]
    path.write_bytes(data.replace(b"\n", b"\r\n"))
    assert [one.stands for one in verify_file(path)] == [False, False]
    path.write_bytes(data.replace(b"\n", b" ", 1))
    assert [one.stands for one in verify_file(path)] == [False]
    path.write_bytes(b"")
    assert [one.stands for one in verify_file(path)] == [False]
    path.write_bytes(b"\n" + data)
    assert [one.stands for one in verify_file(path)] == [False, True, True]


def test_a_smaller_picture_s_record_stands(tmp_path):
    from tests import checkpoints
    from tests.evaluate.test_downsampled import PROCESSORS
    from vicoset.evaluate.answering import Model
    from vicoset.evaluate.method import Downsampled

    model, processor = checkpoints.model("qwen2_5_vl"), PROCESSORS["qwen2_5_vl"]()
    chat = checkpoints.question("what?", checkpoints.picture(48, 32))
    asked = Model(model, processor)
    (row,) = Downsampled(keep=Keep(tokens=6)).answers(asked, lambda: [chat], None, 2)
    found = json.loads(json.dumps(row.record.to_json()))
    assert problems(found) == [] and found["stages"][0]["kept"] == 6
    assert problems(put(found, ("kept",), 7))


def test_the_schema_names_every_field_that_records_have(body, staged):
    """Unknown fields are refused above; here, none of the table is invented."""
    light = recorded("llava", "gmc@1", Keep(coverage=0.7), audit="light")
    llava = recorded("internvl", "gmc@1", 5)
    keys = set()

    def gather(value):
        for part in value.values() if isinstance(value, dict) else value:
            if isinstance(part, (dict, list)):
                gather(part)
        if isinstance(value, dict):
            keys.update(value)

    for one in (body, staged, light, llava):
        gather(one)
    wanted = {name for one in OBJECTS for name in one.fields}
    assert wanted - keys <= {"coordinates"}
