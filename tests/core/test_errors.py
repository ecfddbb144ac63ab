"""Bad input is refused: its own error class, what came, what is allowed, the nearest fix."""

import pytest
import torch

from tests.core.helpers import random_sample, refused
from vicoset import errors
from vicoset.core import banks, checks, coverage, heads, messages, realise
from vicoset.core.clients import build_clients
from vicoset.core.coreset import Population, Reading, build_coreset, ground
from vicoset.errors import DtypeError, ImageError, IndexRangeError, NonFiniteError, ShapeError

r = torch.rand
H, T, N, L, D = 4, 3, 6, 10, 8
ROWS, VISUAL = torch.tensor([7, 8, 9]), torch.arange(2, 8)
IDS = torch.tensor([0, 0, 0, 1, 1, 1])
SEEN = torch.ones(L, dtype=torch.bool)


def attend(q=(H, T, 5), k=(2, L, 5), rows=ROWS, visual=VISUAL, **options):
    return messages.visual_attention(r(*q), r(*k), rows, visual, scaling=1.0, **options)


def clients(states=(N, D), places=(N, 2), ids=IDS, view=None, omega=H, nu=T, **options):
    view = view or banks.View(r(H, T, N), r(H, N))
    return build_clients(r(*states), r(*places), ids, 2, [view], r(omega), r(nu), **options)


def coreset(keep=3, reads=None, **changes):
    people, given = random_sample(tokens=N, images=2, width=D, heads=H)
    return build_coreset(people._replace(**changes), given if reads is None else reads, keep)


def reading(attention=(H, T, N), coordinates=(H, N, 4)):
    return Reading(r(*attention), r(*coordinates))


def ids_of(*values, dtype=torch.long):
    return torch.tensor(values, dtype=dtype)


def test_every_error_is_one_of_ours_and_a_builtin_one():
    for name in ("Budget", "Shape", "NonFinite", "Image", "IndexRange", "Setting"):
        error = getattr(errors, f"{name}Error")
        assert issubclass(error, errors.VicosetError) and issubclass(error, ValueError)
    assert issubclass(DtypeError, errors.VicosetError) and issubclass(DtypeError, TypeError)


SHAPES = {
    "queries with a batch axis": (lambda: attend(q=(1, H, T, 5)), "queries", "[H, T, dh]", "batch"),
    "key width": (lambda: attend(k=(2, L, 6)), "keys has shape [2, 10, 6]", "dh=5"),
    "query rows": (lambda: attend(rows=ROWS[1:]), "query_positions", "[2]", "T=3"),
    "visual columns": (lambda: attend(visual=VISUAL[None]), "visual", "[1, 6]", "[N]"),
    "head groups": (lambda: attend(k=(3, L, 5)), "4 query heads over 3 key", "divide 4"),
    "padding length": (lambda: attend(key_valid=SEEN[1:]), "key_valid", "[9]", "L=10"),
    "padding for all": (lambda: attend(key_valid=SEEN[:1]), "key_valid", "[1]", "L=10"),
    "padding batch": (lambda: attend(key_valid=SEEN[None]), "key_valid", "[1, 10]", "[L=10]"),
    "sinks": (lambda: attend(sinks=r(H + 1)), "sinks", "[5]", "H=4"),
    "one sink": (lambda: attend(sinks=r(1)), "sinks", "[1]", "H=4"),
    "mask too narrow": (lambda: attend(mask=r(L, L - 1)), "mask", "[1, 10, 9]", "Lk >= 10"),
    "mask of two samples": (lambda: attend(mask=r(2, 1, L, L)), "[2, 1, 10, 10]", "one sample's"),
    "mask heads": (lambda: attend(mask=r(3, L, L)), "mask has 3 heads", "1 and 4"),
    "mask vector": (lambda: attend(mask=r(L)), "mask has shape [10]", "[Lq, Lk]"),
    "mask and padding": (lambda: attend(mask=r(L, L), key_valid=SEEN), "mask", "Drop key_valid"),
    "mask and window": (lambda: attend(mask=r(L, L), sliding_window=3), "mask", "sliding_window"),
    "probe width": (lambda: messages.output_probe(r(D, 10), r(9, 4), 2), "weight", "d=9"),
    "probe heads": (lambda: messages.output_probe(r(D, 10), r(D, 4), 3), "10 input", "3 heads"),
    "probe of no head": (lambda: messages.output_probe(r(D, 10), r(D, 4), 0), "0 heads"),
    "value width": (lambda: messages.message_coordinates(r(2, N, 5), r(H, 6, 4)), "dh=5"),
    "value groups": (lambda: messages.message_coordinates(r(3, N, 5), r(H, 5, 4)), "divide 4"),
    "mass axes": (lambda: messages.mass_coordinate(r(N, 4)), "messages", "[H, N, r]"),
    "atom mass": (lambda: messages.atom_norms(r(H, N, 4), r(1)), "mass", "[1]", "H=4"),
    "energy norms": (lambda: messages.energy(r(H, T, N), r(H, 5), r(H), r(T)), "norms", "N=6"),
    "energy heads": (lambda: messages.energy(r(H, T, N), r(H, N), r(1), r(T)), "head_weights"),
    "energy queries": (lambda: messages.energy(r(H, T, N), r(H, N), r(H), r(1)), "query_weights"),
    "gram messages": (lambda: heads.view_gram(r(H, T, N), r(H, 5, 4), r(H)), "messages", "N=6"),
    "gram mass": (lambda: heads.view_gram(r(H, T, N), r(H, N, 4), r(1)), "mass", "H=4"),
    "gram square": (lambda: heads.head_clusters(r(H, 5)), "gram", "[4, 5]", "G=4"),
    "clusters": (lambda: heads.head_weights(r(H, H), ids_of(0, 0, 0)), "gram", "H=3"),
    "grounded norms": (lambda: banks.grounded_rows(r(H, T, N), r(1, N)), "norms", "H=4"),
    "one axis": (lambda: banks.landmarks(1), "1 axes", "2 (y, x)", "3 (t, y, x)"),
    "four axes": (lambda: coreset(coordinates=r(N, 4)), "4 axes", "2 (y, x)"),
    "cover": (lambda: coverage.marginals(r(5, N), r(1)), "covered", "[1]", "M=5"),
    "deficits": (lambda: coverage.deficits(r(5, N), r(1)), "covered", "[1]", "M=5"),
    "client states": (lambda: clients(states=(1, N, D)), "states", "[N, d]", "batch"),
    "client places": (lambda: clients(places=(5, 2)), "coordinates", "[5, 2]", "N=6"),
    "client ids": (lambda: clients(ids=IDS[1:]), "image_ids", "[5]", "N=6"),
    "view tokens": (lambda: clients(view=banks.View(r(H, T, 7), r(H, 7))), "attention", "N=6"),
    "view norms": (lambda: clients(view=banks.View(r(H, T, N), r(1, N))), "norms", "H=4"),
    "view axes": (lambda: clients(view=banks.View(r(T, N), r(T, N))), "attention", "[H=4, T=3"),
    "view heads": (lambda: clients(omega=1), "attention", "H=1"),
    "view queries": (lambda: clients(nu=1), "attention", "T=1"),
    "cache tokens": (lambda: clients(spatial=r(1, 512)), "spatial", "[1, 512]", "N=6"),
    "cache axes": (lambda: clients(spatial=r(N)), "spatial", "[N=6, landmarks]"),
    "assign places": (lambda: realise.assign(r(N, D), r(5, 2), IDS, ids_of(0, 3)), "coordinates"),
    "assign ids": (lambda: realise.assign(r(N, D), r(N, 2), IDS[1:], ids_of(0, 3)), "image_ids"),
    "carriers": (lambda: realise.centroids(r(N, D), IDS[1:], r(N), 2), "carrier", "N=6"),
    "centroid mass": (lambda: realise.centroids(r(N, D), IDS, r(1), 2), "mass", "[1]", "N=6"),
    "cluster mass": (lambda: realise.cluster_mass(r(1), IDS, 2), "mass", "[1]", "N=6"),
    "transport": (lambda: realise.transport(r(N, D), ids_of(0, 3), IDS[1:], r(N)), "carrier"),
    "restore": (lambda: realise.restore_rms(r(2, D), r(1, D)), "moved", "K=1"),
    "no reading": (lambda: coreset(reads=[]), "no reading", "at least the current"),
    "ground nothing": (lambda: ground([]), "no reading", "at least the current"),
    "reading tokens": (lambda: coreset(reads=[reading((H, T, 7), (H, 7, 4))]), "[4, 3, 7]", "N=6"),
    "reading parts": (lambda: coreset(reads=[reading((H, T, 5))]), "readings[0].messages", "N=5"),
    "history heads": (
        lambda: coreset(reads=[reading(), reading((2, T, N), (2, N, 4))]),
        "readings[1].attention",
        "H=4",
    ),
    "history queries": (
        lambda: coreset(reads=[reading(), reading((H, 5, N))]),
        "readings[1].attention",
        "T=3",
    ),
    "coreset states": (lambda: coreset(states=r(1, N, D)), "states", "[N, d]"),
    "coreset places": (lambda: coreset(coordinates=r(5, 2)), "coordinates", "N=6"),
    "full budget, places": (lambda: coreset(keep=N, coordinates=r(5, 2)), "coordinates", "N=6"),
    "coreset ids": (lambda: coreset(image_ids=IDS[1:]), "image_ids", "[5]", "N=6"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_do_not_belong_together_are_refused(name):
    work, *fragments = SHAPES[name]
    with refused(ShapeError, *fragments):
        work()


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn]
)
def test_dtypes_without_this_mathematics_are_refused(dtype):
    def wrong(*shape):
        return torch.ones(shape).to(dtype)

    calls = {
        "states": [
            lambda: coreset(states=wrong(N, D)),
            lambda: coreset(keep=N, states=wrong(N, D)),
            lambda: banks.unit(wrong(N, D)),
            lambda: realise.transport(wrong(N, D), ids_of(0, 3), IDS, r(N)),
            lambda: realise.centroids(wrong(N, D), IDS, r(N), 2),
        ],
        "queries": [
            lambda: messages.visual_attention(wrong(H, T, 5), r(2, L, 5), ROWS, VISUAL, scaling=1.0)
        ],
        "keys": [
            lambda: messages.visual_attention(r(H, T, 5), wrong(2, L, 5), ROWS, VISUAL, scaling=1.0)
        ],
        "values": [lambda: messages.message_coordinates(wrong(2, N, 5), r(H, 5, 4))],
        "weight": [lambda: messages.output_probe(wrong(D, 8), r(D, 4), 2)],
        "readings[0].attention": [lambda: ground([Reading(wrong(H, T, N), r(H, N, 4))])],
        "readings[0].messages": [lambda: ground([Reading(r(H, T, N), wrong(H, N, 4))])],
    }
    name = str(dtype).removeprefix("torch.")
    for tensor_name, works in calls.items():
        for work in works:
            with refused(DtypeError, f"{tensor_name} is {name}", "bfloat16, float16, float32"):
                work()


@pytest.mark.parametrize("shape", [(L, L), (1, L), (1, 1, L, L)])
def test_an_integer_mask_is_refused(shape):
    """A padding mask of zeros and ones is no attention mask, and would be added to the scores."""
    with refused(DtypeError, "mask is int64", "bool (True = visible)", "mask.bool()"):
        attend(mask=torch.ones(shape, dtype=torch.long))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_refused_and_found(value):
    people, reads = random_sample(tokens=N, images=2, width=D, heads=H)
    for target, name, place in [
        (people.states, "states", (4, 7)),
        (people.coordinates, "coordinates", (5, 1)),
        (reads[0].attention, "readings[0].attention", (3, 2, 5)),
        (reads[1].messages, "readings[1].messages", (0, 0, 3)),
    ]:
        before = target[place].item()
        target[place] = value
        fragments = (f"{name} holds 1 non-finite", f"out of {target.numel()}", f"{place} ({value}")
        for keep in (3, N):
            with refused(NonFiniteError, *fragments, "only finite", "float16 ends at 65504"):
                build_coreset(people, reads, keep)
        target[place] = before
    build_coreset(people, reads, 3)


def test_non_finite_values_are_counted_in_every_dtype():
    for dtype in checks.FLOATS:
        bad = torch.ones(4, 5, dtype=dtype)
        checks.finite({"x": bad, "empty": bad[:0]})
        bad[1, 2], bad[3, 0] = torch.nan, torch.inf
        with refused(NonFiniteError, "x holds 2 non-finite values out of 20", "(1, 2) (nan)"):
            checks.finite({"x": bad})


IMAGES = [
    (ids_of(0, 0, 0, 1, 1, 1), 3, ("image 2 has no visual token", "[3, 3, 0]", "images=2")),
    (ids_of(0, 0, 0, 2, 2, 2), 3, ("image 1 has no visual token", "[3, 0, 3]", "images=2")),
    (ids_of(1, 1, 1, 1, 1, 1), 2, ("image 0 has no visual token", "images=1")),
    (ids_of(0, 0, 0, 1, 1, 2), 2, ("from 0 to 2", "images=2", "0..1", "pass images=3")),
    (ids_of(-1, 0, 0, 1, 1, 1), 2, ("from -1 to 1", "0..1", "from 0")),
    (ids_of(0, 0, 0, 1, 1, 1), 1, ("from 0 to 1", "images=1", "pass images=2")),
    (ids_of(0, 0, 0, 0, 0, 0), 0, ("6 visual tokens", "images=0", "at least one")),
    (ids_of(0, 0, 0, 0, 0, 0), -1, ("6 visual tokens", "images=-1", "at least one")),
]


@pytest.mark.parametrize(("ids", "images", "fragments"), IMAGES)
def test_image_ids_that_are_no_partition_are_refused(ids, images, fragments):
    for keep in (3, N):
        with refused(ImageError, *fragments):
            coreset(keep=keep, image_ids=ids, images=images)


def test_a_population_without_tokens_is_refused():
    empty = Population(r(0, D), r(0, 2), IDS[:0], 1)
    with refused(ImageError, "0 visual tokens", "images=1", "no compression"):
        build_coreset(empty, [reading((H, T, 0), (H, 0, 4))], 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int16, torch.uint8])
def test_image_ids_of_another_dtype_are_refused(dtype):
    with refused(DtypeError, "image_ids is", "int64 and int32", "image_ids.long()"):
        coreset(image_ids=IDS.to(dtype))
    assert len(coreset(image_ids=IDS.int()).indices) == 3


@pytest.mark.parametrize(
    ("index", "fragments"),
    [
        (ids_of(), ("rows is empty", "at least one")),
        (ids_of(0, 5), ("from 0 to 5", "0..4")),
        (ids_of(-1, 3), ("from -1 to 3", "0..4")),
        (ids_of(1, 1), ("not strictly ascending", "rows.unique()")),
        (ids_of(3, 1), ("not strictly ascending", "source order")),
    ],
)
def test_indices_outside_their_range_are_refused(index, fragments):
    with refused(IndexRangeError, *fragments):
        checks.indices(index, "rows", 5)


def test_indices_of_another_dtype_are_refused():
    with refused(DtypeError, "rows is float32", "int64 and int32", "rows.long()"):
        checks.indices(r(3), "rows", 5)
    checks.indices(ids_of(0, 2, 4), "rows", 5)
    checks.indices(ids_of(0, 2, dtype=torch.int32), "rows", 5)


def test_sizes_of_axes_are_handed_on():
    sizes = checks.shape(r(2, 3), "x", "A B")
    assert checks.shape(r(3, 4), "y", "B C", **sizes) == {"A": 2, "B": 3, "C": 4}
    with refused(ShapeError, "x has shape [2, 3]", "expected [A, A]", "Axis A is 3 here and 2"):
        checks.shape(r(2, 3), "x", "A A")
