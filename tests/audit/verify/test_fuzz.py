"""Bytes and values at random: nothing crashes, nothing is accepted."""

import random
import re

import pytest

from tests.audit.verify.tamper import leaves, line_of, problems, put, recorded
from tests.runtime.helpers import two_stages
from vicoset.audit.verify import verify_line


@pytest.fixture(scope="module")
def body():
    return recorded("qwen2_5_vl", "gmc@2", 5, 2)


@pytest.fixture(scope="module")
def staged():
    return recorded("llava", two_stages(), 9, prefix="dense")


def test_no_flip_of_a_byte_crashes_or_is_accepted(body):
    line = line_of(body, renewed=False)
    dice = random.Random(0)
    spots = [(dice.randrange(len(line)), dice.randrange(8)) for _ in range(1200)]
    readable = 0
    for spot, bit in spots:
        wrong = bytearray(line)
        wrong[spot] ^= 1 << bit
        found = verify_line(bytes(wrong))
        assert not found.stands and found.problems[0].where == "seal"
        readable += found.body is not None
        assert all(ascii(str(p)) == repr(str(p)) for p in found.problems)  # fit for any terminal
    assert readable > 200  # many flips leave valid JSON


def test_digits_that_change_alone_name_their_field(body):
    line = line_of(body, renewed=False)
    end = line.index(b',"fields":')
    digits = [m.start() for m in re.finditer(rb"[0-9]", line[:end])]
    for spot in random.Random(1).sample(digits, min(250, len(digits))):
        digit = b"%d" % ((line[spot] - 48 + 1) % 10)
        found = verify_line(line[:spot] + digit + line[spot + 1 :])
        where = {problem.where for problem in found.problems}
        assert where - {"seal", "line"}, line[spot - 30 : spot + 1]


ODD = [
    None,
    [],
    {},
    "x",
    True,
    -1,
    0,
    1.5,
    1e308,
    -1e308,
    10**30,
    10**400,
    [[[]]],
    {"a": 1},
    "\ud800",
]


def test_nonsense_that_is_well_sealed_never_crashes(body, staged):
    dice = random.Random(2)
    for source in (body, staged):
        for path, _ in leaves(source):
            for _ in range(2):
                wrong = put(source, path, dice.choice(ODD))
                verify_line(line_of(wrong, renewed=path[0] != "fields"))
    nodes = [path[:n] for path, _ in leaves(staged) for n in range(1, len(path))]
    for path in sorted(set(nodes), key=str):
        for value in dice.sample(ODD, 5):
            free = path[-1] in ("about", "evidence") and isinstance(value, dict)
            if path[0] == "fields" or free:  # open to anything, or empty: nothing was measured
                continue
            found = verify_line(line_of(put(staged, path, value)))
            assert not found.stands or value == staged[path[0]], (path, value)


def test_numbers_without_end_take_no_time(body):
    huge = put(body, ("tokens",), 10**15)
    huge = put(huge, ("length",), 10**15 + 40)
    huge = put(huge, ("images", 0, "tokens"), 10**15)
    huge = put(huge, ("images", 0, "runs"), [[0, 10**15]])
    assert any("length" in text for text in problems(huge))
