"""Hand-worked checks of the oracle: budget, attention, heads and banks."""

import math

import numpy as np
import pytest

from tests import oracle

LN2 = math.log(2.0)


def close(actual, expected):
    """Equality up to rounding, shapes included."""
    expected = np.asarray(expected, dtype=np.float64)
    assert np.shape(actual) == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("keep", "tokens", "images", "expected"),
    [
        (0.5, 5, 1, 3),  # 2.5 rounds up
        (0.3, 5, 1, 2),  # 1.5 rounds up
        (0.25, 5, 1, 1),  # 1.25 rounds down
        (0.1, 4, 1, 1),  # 0.4 would be 0
        (1.0, 7, 1, 7),
        (1, 7, 1, 1),  # a count, not a fraction
        (2, 10, 3, 3),  # one carrier per image
        (20, 10, 1, 10),
        (0.1, 10, 4, 4),
    ],
)
def test_budget(keep, tokens, images, expected):
    assert oracle.realised_keep(keep, tokens, images) == expected


def test_evenly_spaced():
    # floor((2j + 1) * 10 / 8) = floor(1.25), floor(3.75), floor(6.25), floor(8.75)
    close(oracle.evenly_spaced(10, 4), [1, 3, 6, 8])
    close(oracle.evenly_spaced(3, 5), [0, 1, 2])
    close(oracle.evenly_spaced(3, 1), [1])


def test_query_positions():
    text, visual = [0, 1, 5, 6, 7, 8], [2, 3, 4]
    rows, potential = oracle.query_positions(text, visual)
    close(rows, [5, 6, 7, 8])
    assert potential == 4
    # the terminal row 8, and floor(3 / 4) = 0 and floor(9 / 4) = 2 of the rows 5, 6, 7
    rows, potential = oracle.query_positions(text, visual, max_queries=3)
    close(rows, [5, 7, 8])
    assert potential == 4
    close(oracle.query_positions(text, visual, max_queries=1)[0], [8])


def test_query_positions_count_text_between_the_images():
    # images at 1, 2 and at 4, 5: row 3 sees the first one, row 0 sees none
    close(oracle.query_positions([0, 3, 6], [1, 2, 4, 5])[0], [3, 6])


def test_query_weights():
    close(oracle.query_weights(3), [0.25, 0.25, 0.5])
    close(oracle.query_weights(1), [1.0])
    close(oracle.query_weights(2, terminal=3.0), [0.25, 0.75])


def attend(**options):
    """Visual tokens at 0 and 1, the query at 2; weights exp(score) are 2, 1 and 1."""
    q = np.array([[[1.0, 0.0]]])
    k = np.array([[[2 * LN2, 7.0], [0.0, -3.0], [0.0, 1.0]]])
    return oracle.visual_attention(q, k, [2], [0, 1], 0.5, **options)[0, 0]


def test_attention_counts_text_keys_in_the_denominator():
    close(attend(), [2 / 4, 1 / 4])


def test_attention_sees_what_the_query_sees():
    close(attend(key_valid=np.array([False, True, True])), [0, 1 / 2])
    close(attend(sliding_window=2), [0, 1 / 2])
    close(attend(sliding_window=3), [2 / 4, 1 / 4])
    q, k = np.zeros((1, 1, 2)), np.zeros((1, 3, 2))
    # a query at 1 does not see the token at 2
    close(oracle.visual_attention(q, k, [1], [0, 2], 1.0), [[[1 / 2, 0]]])


def test_attention_options():
    close(attend(sinks=np.array([2 * LN2])), [2 / 8, 1 / 8])
    # a huge score saturates at the cap ln 2, a score of 0 stays
    q, k = np.ones((1, 1, 1)), np.array([[[1e6], [0.0], [0.0]]])
    close(oracle.visual_attention(q, k, [2], [0, 1], 1.0, softcap=LN2), [[[2 / 4, 1 / 4]]])


def test_attention_masks():
    seen = np.ones((3, 4), dtype=bool)
    seen[2, 1] = False
    close(attend(mask=seen), [2 / 3, 0])
    close(attend(mask=seen[None]), [2 / 3, 0])
    close(attend(mask=seen[None, None]), [2 / 3, 0])
    for dtype in (np.float32, np.float64):
        for hidden in (-np.inf, np.finfo(dtype).min, np.finfo(dtype).min / 2):
            close(attend(mask=np.where(seen, 0, hidden).astype(dtype)), [2 / 3, 0])
    # a bias of ln 2 on the second token: weights 2, 2, 1
    close(attend(mask=np.array([[0, 0, 0], [0, 0, 0], [0, LN2, 0]])), [2 / 5, 2 / 5])
    with pytest.raises(ValueError, match="whole truth"):
        attend(mask=seen, sliding_window=2)


def test_attention_of_a_blind_query_is_zero():
    close(attend(mask=np.zeros((3, 3), dtype=bool)), [0, 0])
    close(attend(mask=np.full((3, 3), np.finfo(np.float64).min / 2)), [0, 0])
    close(attend(mask=np.zeros((3, 3), dtype=bool), sinks=np.zeros(1)), [0, 0])


def test_attention_groups_queries_and_masks_heads():
    q = np.ones((4, 1, 1))
    k = np.array([[[LN2], [0.0], [0.0]], [[0.0], [LN2], [0.0]]])
    A = oracle.visual_attention(q, k, [2], [0, 1], 1.0)
    close(A[:, 0], [[1 / 2, 1 / 4], [1 / 2, 1 / 4], [1 / 4, 1 / 2], [1 / 4, 1 / 2]])
    seen = np.ones((4, 3, 3), dtype=bool)
    seen[1, 2, 0] = False
    A = oracle.visual_attention(q, k, [2], [0, 1], 1.0, mask=seen[None])
    close(A[:, 0], [[1 / 2, 1 / 4], [0, 1 / 2], [1 / 4, 1 / 2], [1 / 4, 1 / 2]])


def test_message_coordinates():
    # O_0 = [[1, 3]], O_1 = [[2, 4]] (columns of the weight); P keeps the first output axis
    probe = oracle.output_probe([[1, 2], [3, 4]], [[1], [0]], 2)
    close(probe, [[[1]], [[2]]])
    close(oracle.message_coordinates([[[3], [5]]], probe), [[[3], [5]], [[6], [10]]])


def test_mass_coordinate_and_norms():
    Z = np.array([[[3.0], [4.0]], [[0.0], [0.0]]])
    close(oracle.mass_coordinate(Z), [5 / math.sqrt(2), 1e-8])
    # two tokens at rank two: sqrt(1 + 4 + 4) / sqrt(2 * 2)
    close(oracle.mass_coordinate(np.array([[[1.0, 2.0], [2.0, 0.0]]])), [3 / 2])
    close(oracle.atom_norms(Z, np.array([4.0, 2.0])), [[5, math.sqrt(32)], [2, 2]])


def test_energy():
    # e = sqrt(0.2 * 0.25), sqrt(0.8 * 0.25): one to two, mean 1.5 units
    A = np.array([[[0.5, 0.0], [0.0, 0.5]]])
    e = oracle.energy(A, np.ones((1, 2)), np.ones(1), np.array([0.2, 0.8]))
    close(e, [2 / 3, 4 / 3])
    close(oracle.energy(0 * A, np.ones((1, 2)), np.ones(1), np.array([0.2, 0.8])), [1, 1])


def test_view_gram():
    # head 0: atom [3, 4] of norm 5; head 1: atom 0.5 * [0, 2] of norm 1; head 2 sees nothing
    A = np.array([[[1.0]], [[0.5]], [[0.0]]])
    Z = np.array([[[3.0]], [[0.0]], [[1.0]]])
    gram = oracle.view_gram(A, Z, np.array([4.0, 2.0, 1.0]))
    close(gram, [[1, 0.8, 0], [0.8, 1, 0], [0, 0, 0]])
    # the mean norm runs over queries and tokens: norms 5 and 0 have mean 2.5, squares add to 4
    A, Z = np.array([[[1.0], [0.0]]]), np.array([[[3.0]]])
    close(oracle.view_gram(A, Z, np.array([4.0])), [[4]])
    close(oracle.head_gram([np.eye(2), np.ones((2, 2))], [0.5, 0.25]), [[0.75, 0.25], [0.25, 0.75]])


def test_head_clusters_of_orthogonal_heads():
    # Head 1 is the longest. All others have cosine 0 to it: 0, 2, 3 become centres in order.
    # Head 4 is equally far from every centre and joins the earliest.
    gram = np.diag([1.0, 9.0, 4.0, 1.0, 1.0])
    clusters = oracle.head_clusters(gram)
    close(clusters, [1, 0, 2, 3, 0])
    # Heads 1 and 4 are both 1 / sqrt(2) from their mean; every cluster has a quarter.
    close(oracle.head_weights(gram, clusters), [1 / 4, 1 / 8, 1 / 4, 1 / 4, 1 / 8])


def test_head_clusters_take_the_farthest_head():
    # cosines to head 0: 0.8, -0.6, 0.6
    points = np.array([[2.0, 0.0], [0.8, 0.6], [-0.6, 0.8], [0.6, -0.8]])
    gram = points @ points.T
    # centres 0, 2 (at -0.6), then 3 (at 0.6 to head 0, against 0.8 for head 1)
    close(oracle.head_clusters(gram, most=3), [0, 0, 1, 2])
    close(oracle.head_clusters(gram, most=2), [0, 0, 1, 0])
    close(oracle.head_clusters(gram, most=1), [0, 0, 0, 0])


def test_identical_heads_share_one_cluster():
    gram = np.full((6, 6), 3.0)
    close(oracle.head_clusters(gram), [0] * 6)
    close(oracle.head_weights(gram, [0] * 6), [1 / 6] * 6)


def test_head_comparisons_ignore_rounding():
    # Head 1 is longer and head 2 farther by far less than 2^-16: both count as ties.
    gram = np.diag([1.0, 1.0 + 1e-8, 0.5, 0.5])
    gram[0, 3] = gram[3, 0] = -1e-8
    close(oracle.head_clusters(gram, most=2), [0, 1, 0, 0])


def test_inactive_heads_join_the_first_cluster():
    gram = np.diag([0.0, 4.0, 1.0])
    clusters = oracle.head_clusters(gram)
    close(clusters, [0, 0, 1])
    # cluster 0: 1 / 1.05 for the inactive head against 1 / 0.05, so 1 to 21
    close(oracle.head_weights(gram, clusters), [1 / 44, 21 / 44, 1 / 2])
    close(oracle.head_clusters(np.zeros((3, 3))), [0, 0, 0])
    close(oracle.head_weights(np.zeros((3, 3)), [0, 0, 0]), [1 / 3] * 3)


def test_head_weights_by_dispersion():
    # patterns e1, e1, e2: the sum is (2, 1), so u . mu = 2 / sqrt(5) twice and 1 / sqrt(5)
    gram = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    raw = np.array([1 / (1.05 - 2 / 5**0.5)] * 2 + [1 / (1.05 - 1 / 5**0.5)])
    close(oracle.head_weights(gram, [0, 0, 0]), raw / raw.sum())
    # opposite patterns have no mean direction
    close(oracle.head_weights(np.array([[1.0, -1.0], [-1.0, 1.0]]), [0, 0]), [0.5, 0.5])


def test_view_masses():
    close(oracle.view_masses(0), [1])
    close(oracle.view_masses(1), [0.5, 0.5])
    close(oracle.view_masses(2), [0.5, 0.25, 0.25])


def test_grounded_bank():
    # atoms 0.25 * 2 and 0.5 * 3 in the current view; the second query sees nothing
    current = (np.array([[[0.25, 0.5], [0.0, 0.0]]]), np.array([[2.0, 3.0]]))
    past = (np.array([[[0.5, 0.5], [0.5, 0.0]]]), np.array([[1.0, 1.0]]))
    nu = np.array([1 / 3, 2 / 3])
    bank = oracle.grounded_bank([current, past], np.ones(1), nu, np.array([0.5, 0.5]))
    close(bank["rows"], [[1 / 4, 3 / 4], [0, 0], [1 / 2, 1 / 2], [1, 0]])
    close(bank["masses"], [1 / 6, 1 / 3, 1 / 6, 1 / 3])
    assert bank["active"].tolist() == [True, False, True, True]
    bank = oracle.grounded_bank([current, past], np.ones(1), nu, np.array([0.5, 0.5]), "uniform")
    close(bank["masses"], [1 / 4] * 4)


def test_appearance_bank():
    # two directions in the first image, the second image alone; cosines 1 and 0 over 0.2
    states = np.array([[2.0, 0.0], [0.0, 3.0], [5.0, 0.0]])
    bank = oracle.appearance_bank(states, [0, 0, 1])
    own = math.exp(5) / (math.exp(5) + 1)
    close(bank["rows"], [[own, 1 - own, 0], [1 - own, own, 0], [0, 0, 1]])
    close(bank["masses"], [1 / 6] * 3)
    # a zero state likes every token of its image equally, and is a client like any other
    bank = oracle.appearance_bank(np.array([[0.0, 0.0], [1.0, 0.0]]), [0, 0])
    close(bank["rows"], [[0.5, 0.5], [1 - own, own]])
    assert bank["active"].all()


def test_appearance_bank_of_a_long_prefix():
    # clients floor(3 / 4) = 0 and floor(9 / 4) = 2 of three tokens. Under these signs the first
    # axis maps to (1, ..., 1) and the second to half 1, half -1: still orthogonal.
    states = np.array([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0]])
    signs = np.ones((2, 128))
    signs[1, 64:] = -1
    bank = oracle.appearance_bank(states, [0, 0, 0], signs, limit=2)
    row = np.array([math.exp(5), 1, math.exp(5)]) / (2 * math.exp(5) + 1)
    close(bank["rows"], [row, row])
    close(bank["masses"], [0.25, 0.25])


def test_spatial_bank():
    points = oracle.landmarks(2)
    assert points.shape == (256, 2)
    close(points[[0, 1, 16]], [[1 / 32, 1 / 32], [1 / 32, 3 / 32], [3 / 32, 1 / 32]])
    points = oracle.landmarks(3)
    assert points.shape == (256, 3)
    close(
        points[[0, 1, 64]],
        [[1 / 8, 1 / 16, 1 / 16], [1 / 8, 1 / 16, 3 / 16], [3 / 8] + [1 / 16] * 2],
    )

    bank = oracle.spatial_bank([[0.5, 0.25], [0.5, 0.75], [0.5, 0.5]], [0, 0, 1], 2)
    close(bank["masses"], [0.25 / 512] * 512)
    close(bank["rows"].sum(axis=1), [1] * 512)
    close(bank["rows"][256:], [[0, 0, 1]] * 256)
    # Landmark (y, x) at x = 15/32: distances 7/32 and 9/32 along x, equal along y, so the squares
    # differ by 32 / 32^2 = 1/32.
    odds = math.exp((1 / 32) / 0.02)
    close(bank["rows"][7], [odds / (1 + odds), 1 / (1 + odds), 0])


def test_client_matrix():
    def bank(name, rows, masses, nominal):
        rows = np.array(rows)
        active = rows.any(axis=1)
        masses = np.array(masses)
        return {"name": name, "rows": rows, "masses": masses, "active": active, "nominal": nominal}

    grounded = bank("grounded", [[0.5, 0.5], [0.0, 0.0]], [0.25, 0.75], 1.0)
    spatial = bank("spatial", [[1.0, 0.0]], [0.25], 0.25)
    C, books = oracle.client_matrix([grounded, spatial])
    close(C, [[0.125, 0.125], [0, 0], [0.25, 0]])
    assert [book["name"] for book in books] == ["grounded", "spatial"]
    assert [(book["start"], book["stop"]) for book in books] == [(0, 2), (2, 3)]
    assert [(book["rows"], book["active"]) for book in books] == [(2, 1), (1, 1)]
    close([book["nominal"] for book in books], [1, 0.25])
    close([book["deployed"] for book in books], [0.25, 0.25])
    close([book["attainable"] for book in books], [0.125, 0.25])
    close([book["share"] for book in books], [1 / 3, 2 / 3])
