"""Hand-worked checks of the oracle: coverage, solver and realisation; checks of the instances."""

import itertools
import math

import numpy as np
from hypothesis import given, settings

from tests import instances, oracle
from tests.oracle.test_oracle import close

C3 = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 2.0], [1.0, 0.0, 4.0]])
quick = settings(max_examples=60, deadline=None)


def test_facility_on_three_clients():
    close(oracle.cover(C3, []), [0, 0, 0])
    close(oracle.cover(C3, [0, 2]), [3, 2, 4])
    assert oracle.facility(C3, []) == 0
    assert oracle.facility(C3, [0]) == 4
    assert oracle.facility(C3, [0, 2]) == 9
    close(oracle.marginals(C3, np.zeros(3)), [4, 3, 6])
    # over token 2 the cover is (0, 2, 4)
    close(oracle.marginals(C3, oracle.cover(C3, [2])), [3, 1, 0])
    close(oracle.deficits(C3, oracle.cover(C3, [2])), [3, 0, 0])
    assert oracle.ratio(C3, [2]) == 6 / 9
    assert oracle.ratio(np.zeros((2, 3)), []) == 1
    close(oracle.bank_ratios(C3, [2], [(0, 1), (1, 3), (3, 3)]), [0, 1, 1])


def test_certificate():
    assert oracle.certificate([]) == 0
    assert oracle.certificate([0.5, 0.5]) == 0.75
    assert oracle.certificate([1.0, 0.25]) == 1


def test_responsibilities():
    # a row splits by residual over a tenth of its largest: (2, 1) -> exponents 10 and 5
    share = 1 / (1 + math.exp(-5))
    close(oracle.pool_responsibilities(np.array([[2.0, 1.0]])), [[share, 1 - share]])
    close(oracle.pool_responsibilities(np.array([[0.0, 0.0]])), [[0.5, 0.5]])


def test_solver_one_token_at_a_time():
    # Round 1: gains (4, 3, 6). Client 0 goes to token 0, client 1 to tokens 1 and 2 equally,
    # client 2 to token 2: scores near (3, 1, 5). Token 2 gains 6 of U = 6 + 4.
    # Round 2: gains (3, 1, 0), pool {0, 1}. Token 0 gains 3 of U = 3 + 1.
    found = oracle.select(C3, 2, batch=1)
    close(found["support"], [0, 2])
    close(found["entry"], [2, 0])
    first, second = found["rounds"]
    assert (first["pool"], first["entered"]) == ([2, 0, 1], [2])
    assert (second["pool"], second["entered"]) == ([0, 1], [0])
    close(first["gains"], [4, 3, 6])
    close(second["gains"], [3, 1, 0])
    assert (first["U"], first["gained"], second["U"], second["gained"]) == (10, 6, 4, 3)
    row0, row2 = [math.exp(-20 / 3), math.exp(-10)], [math.exp(-7.5), math.exp(-10)]
    s0 = 3 / (1 + sum(row0)) + row2[0] / (1 + sum(row2))
    s2 = 2 / (2 + math.exp(-10)) + 4 / (1 + sum(row2))
    close([first["scores"][0], first["scores"][2]], [s0, s2])
    close(first["score_margin"], (s2 - s0) / s2)
    assert first["gain_margin"] == math.inf
    close(found["q"], [0.6, 0.75])
    close(found["c_B"], 0.9)
    assert found["value"] == 9
    assert found["filled"] == found["anchors"] == []


def test_solver_prefers_complementary_tokens():
    # Gains (4, 4, 3), but tokens 0 and 1 share client 0: scores near (2, 2, 3).
    C = np.array([[4.0, 4.0, 0.0], [0.0, 0.0, 3.0]])
    found = oracle.select(C, 2, batch=2)
    close(found["entry"], [2, 0])
    close(found["q"], [7 / 8])
    # The cut runs between tokens 0 and 1. They are equal columns, which is no close call: what
    # counts is the lead of token 2 over token 1.
    s1, s2 = 4 / (2 + math.exp(-10)), 3 / (1 + 2 * math.exp(-10))
    close(found["rounds"][0]["score_margin"], (s2 - s1) / s2)
    # a pool of one token leaves no choice
    close(oracle.select(C, 1, batch=1, pool_factor=1)["support"], [0])


def test_solver_batches():
    # five clients, each wants its own token, ever less; a short last round
    C = np.diag([5.0, 4.0, 3.0, 2.0, 1.0])
    found = oracle.select(C, 4, batch=3, pool_factor=1)
    assert [r["pool"] for r in found["rounds"]] == [[0, 1, 2], [3, 4]]
    assert [r["entered"] for r in found["rounds"]] == [[0, 1, 2], [3]]
    # U sums the four largest gains, then the two that remain positive
    close([r["U"] for r in found["rounds"]], [14, 3])
    close(found["q"], [12 / 14, 2 / 3])


def test_solver_fills_without_gain():
    found = oracle.select(np.zeros((2, 4)), 2)
    close(found["support"], [0, 1])
    assert (found["filled"], found["rounds"], found["c_B"]) == ([0, 1], [], 0)
    # token 2 covers everything; then the lowest free ones
    C = np.array([[0.0, 0.0, 1.0, 0.5]])
    found = oracle.select(C, 3, batch=1)
    close(found["entry"], [2, 0, 1])
    assert found["filled"] == [0, 1]
    # in a batch, both tokens of the pool enter, though the second adds nothing
    close(oracle.select(C, 3, batch=2)["entry"], [2, 3, 0])


def test_solver_anchors_every_image():
    # singleton gains (1, 2, 2, 1, 3): token 1 (a tie) for image 0, token 4 for image 1
    C = np.diag([1.0, 2.0, 2.0, 1.0, 3.0])
    found = oracle.select(C, 3, [0, 0, 0, 1, 1], images=2, batch=1)
    assert found["anchors"] == [1, 4]
    close(found["entry"], [1, 4, 2])
    # the anchors are no round: U = 2 + 1 + 1 over them
    close(found["q"], [2 / 4])
    assert found["anchor_margin"] == 0  # tokens 1 and 2 tie
    assert oracle.select(C, 1)["anchors"] == []


def test_references():
    support, value = oracle.best_support(C3, 2)
    close(support, [0, 2])
    assert value == 9
    support, value = oracle.best_support(C3, 2, [0, 0, 1], images=2)
    close(support, [0, 2])
    close(oracle.best_support(np.ones((2, 3)), 2)[0], [0, 1])  # the first of equals
    entry, values = oracle.greedy(C3, 3)
    close(entry, [2, 0, 1])
    close(values, [6, 9, 9])
    # greedy takes the broad token first; the best pair does without it
    C = np.array([[2.0, 0.0, 1.5], [2.0, 0.0, 1.5], [0.0, 2.0, 1.5], [0.0, 2.0, 1.5]])
    close(oracle.best_support(C, 2)[0], [0, 1])
    close(oracle.greedy(C, 2)[0], [2, 0])


def test_two_clusters():
    states = np.array([[2.0, 0.0], [0.0, 1.0], [4.0, 0.0], [0.0, 3.0]])
    places = np.array([[0.25, 0.25], [0.25, 0.75], [0.75, 0.25], [0.75, 0.75]])
    # cosines of tokens 2 and 3 are 1 and 0: gap 1, so s_x = 1 and no ambiguity
    found = oracle.realise(states, places, [0, 1], [0] * 4, np.array([0.0, 2.0, 2.0, 0.0]))
    close(found["gaps"], [0, 0, 1, 1])
    assert found["s_x"] == 1
    close(found["gates"], [1, 1, 0, 0])
    close(found["carrier"], [0, 1, 0, 1])
    close(found["margin"], [math.inf, math.inf, 1, 1])
    close(found["m"], [0.5, 1.5, 1.5, 0.5])
    close(found["M"], [2, 2])
    # (0.5 * 2 + 1.5 * 4) / 2 and (1.5 * 1 + 0.5 * 3) / 2, each at the carrier's own RMS again
    close(found["c"], [[3.5, 0], [0, 1.5]])
    close(found["states"], [[2, 0], [0, 1]])
    close(found["M"] @ found["c"], found["m"] @ states)


def test_restoration():
    # the centroid of (1, 0) and (0, 1) points between them, at the RMS of (1, 0)
    states = np.array([[1.0, 0.0], [0.0, 1.0]])
    found = oracle.realise(states, np.zeros((2, 2)), [0], [0, 0], np.ones(2))
    assert (found["gaps"][1], found["s_x"]) == (0, 0)
    close(found["states"], [[0.5**0.5, 0.5**0.5]])
    close(oracle.transport(states, found["c"], [0], tau=0.0), [[1, 0]])
    # exact cancellation keeps the carrier; a zero carrier stays zero
    opposite = np.array([[1.0, 2.0], [-1.0, -2.0]])
    found = oracle.realise(opposite, np.zeros((2, 2)), [0], [0, 0], np.ones(2))
    close(found["c"], [[0, 0]])
    close(found["states"], [[1, 2]])
    close(oracle.restore(np.array([3.0, 4.0]), np.zeros(2)), [0, 0])


def test_separability():
    # mean over the discarded tokens 1 and 2: 0.08, so s_x = 1 - 1 / e
    close(oracle.separability(np.array([9.0, 0.0, 0.16]), [0]), 1 - math.exp(-1))
    assert oracle.separability(np.zeros(2), [0, 1]) == 0
    close(oracle.local_gates(np.array([0.0, 0.025, 0.05, 1.0])), [1, 0.5, 0, 0])
    close(oracle.masses(0.5, [0.0, 2.0]), [0.75, 1.25])


def test_assignment_looks_near_when_cosines_tie():
    states = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    places = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.9], [0.0, 0.5]])
    carrier, _ = oracle.assign(states, places, [0, 1], [0] * 4, np.zeros(4), 1.0)
    close(carrier, [0, 1, 1, 0])  # token 3 lies in the middle: the lower index
    carrier, _ = oracle.assign(states, places, [0, 1], [0] * 4, np.zeros(4), 0.0)
    close(carrier, [0, 1, 0, 0])
    # a clear match is not ambiguous: with gate 0 the place does not count
    carrier, _ = oracle.assign(states, places, [0, 1], [0] * 4, np.full(4, 0.05), 1.0)
    close(carrier, [0, 1, 0, 0])


def test_gaps_and_margins_of_three_candidates():
    # cosines of the last token: 1, 0.6 and 0
    states = np.array([[0.0, 1.0], [0.6, 0.8], [2.0, 0.0], [3.0, 0.0]])
    close(oracle.cosine_gaps(states, [0, 1, 2], [0] * 4), [0, 0, 0, 0.4])
    # equal cosines at distances 0.05 and 0.15, half a gate: 0.5 * s_x * g * exp(-d^2 / 0.02)
    places = np.array([[0.0, 0.0], [0.0, 0.2], [0.0, 0.05]])
    gaps = np.array([0.0, 0.0, 0.025])
    carrier, margin = oracle.assign(np.ones((3, 2)), places, [0, 1], [0] * 3, gaps, 0.8)
    close(carrier, [0, 1, 0])
    close(margin[2], 0.5 * 0.8 * 0.5 * (math.exp(-0.125) - math.exp(-1.125)))


def test_assignment_stays_in_the_image():
    states = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    found = oracle.realise(states, np.zeros((4, 2)), [0, 3], [0, 0, 1, 1], np.ones(4))
    close(found["gaps"], [0, 0, 0, 0])  # one candidate each
    close(found["carrier"], [0, 0, 3, 3])


def solve(case):
    """The solver on a ClientCase, at the case's own settings."""
    return oracle.select(
        case.C,
        case.kept,
        case.image_ids,
        case.images,
        batch=case.batch,
        pool_factor=case.pool_factor,
    )


@quick
@given(instances.client_cases(max_tokens=9, max_clients=12))
def test_certificates_hold_against_the_best_support(case):
    found = solve(case)
    _, best = oracle.best_support(case.C, case.kept)
    start = oracle.facility(case.C, found["anchors"])
    bound = found["c_B"] * best + (1 - found["c_B"]) * start
    assert found["value"] >= bound * (1 - 1e-12)
    assert found["value"] <= best * (1 + 1e-12)
    greedy = oracle.greedy(case.C, case.kept)[1][-1]
    assert greedy >= (1 - math.exp(-1)) * best * (1 - 1e-12)


@quick
@given(instances.client_cases())
def test_supports_are_well_formed(case):
    found = solve(case)
    support = found["support"]
    assert len(support) == case.kept
    assert (np.diff(support) > 0).all()
    assert set(case.image_ids[support]) == set(range(case.images))
    covered = oracle.cover(case.C, support)
    close(oracle.marginals(case.C, covered)[support], np.zeros(case.kept))
    for log in found["rounds"]:  # equal columns have exactly equal gains and scores
        for i, j in itertools.pairwise(log["pool"]):
            if (case.C[:, i] == case.C[:, j]).all():
                assert log["scores"][i] == log["scores"][j]


@quick
@given(instances.population_cases(max_tokens=60))
def test_populations_are_well_formed(case):
    assert (np.diff(case.image_ids) >= 0).all()
    assert set(case.image_ids) == set(case.image_ids[case.support]) == set(range(case.images))
    assert ((case.coordinates > 0) & (case.coordinates < 1)).all()
    assert all((A >= 0).all() and (A.sum(axis=2) <= 1 + 1e-12).all() for A, _ in case.views)
    patterns, grams, grounded = [], [], []
    betas = oracle.view_masses(case.history)
    for (A, Z), beta in zip(case.views, betas, strict=True):
        sigma = oracle.mass_coordinate(Z)
        patterns.append(math.sqrt(beta) * oracle.view_patterns(A, Z, sigma))
        grams.append(oracle.view_gram(A, Z, sigma))
        grounded.append((A, oracle.atom_norms(Z, sigma)))
    gram, pattern = oracle.head_gram(grams, betas), np.concatenate(patterns, axis=1)
    np.testing.assert_allclose(gram, pattern @ pattern.T, rtol=1e-9, atol=1e-9)
    omega = oracle.head_weights(gram, oracle.head_clusters(gram))
    nu = oracle.query_weights(case.views[0][0].shape[1])
    banks = [
        oracle.grounded_bank(grounded, omega, nu, betas),
        oracle.appearance_bank(case.states, case.image_ids),
        oracle.spatial_bank(case.coordinates, case.image_ids, case.images),
    ]
    C, books = oracle.client_matrix(banks)
    np.testing.assert_allclose([bank["masses"].sum() for bank in banks], [1, 0.5, 0.25])
    spans = [(book["start"], book["stop"]) for book in books]
    np.testing.assert_allclose(
        oracle.ratio(C, case.support),
        np.dot([b["share"] for b in books], oracle.bank_ratios(C, case.support, spans)),
    )
    found = oracle.realise(case.states, case.coordinates, case.support, case.image_ids, case.energy)
    assert (case.image_ids[found["carrier"]] == case.image_ids).all()
    np.testing.assert_allclose(found["M"] @ found["c"], found["m"] @ case.states, atol=1e-9)


@quick
@given(instances.attention_cases(max_tokens=60))
def test_attention_cases_are_well_formed(case):
    A = oracle.visual_attention(
        case.q, case.k, case.query_positions, case.visual, case.scaling, **case.options
    )
    assert (A >= 0).all() and (A.sum(axis=2) <= 1 + 1e-12).all()
    rows, potential = oracle.query_positions(case.text, case.visual)
    assert set(case.query_positions) <= set(rows)
    assert case.query_positions[-1] == rows[-1] and potential == len(rows)
    assert (np.diff(case.query_positions) > 0).all()
    late = case.visual[None, :] > case.query_positions[:, None]
    assert case.mask is not None or (A[:, late] == 0).all()


@quick
@given(instances.gram_cases())
def test_head_weights_sum_to_one(case):
    clusters = oracle.head_clusters(case.gram)
    assert clusters.min() >= 0 and clusters.max() <= 3
    weights = oracle.head_weights(case.gram, clusters)
    assert (weights > 0).all()
    close(weights.sum(), 1)
