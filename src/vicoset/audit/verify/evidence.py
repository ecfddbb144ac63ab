"""What a stage says it measured: coverage, certificate, banks, queries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vicoset.audit.verify.problem import EXACT, SUMMED, Findings, shown
from vicoset.core.settings import Settings

COVERAGE = (
    *("value", "total", "ratio", "certificate", "progress", "start_value", "banks"),
    *("bank_numerator", "bank_denominator", "bank_saturation", "bank_share"),
    *("bank_nominal", "bank_deployed", "bank_rows", "bank_active"),
)
MOST = 1e30  # of a number of coverage; masses are of the order of 1
BANKS = ("grounded", "appearance", "spatial")


def check_evidence(body: Mapping[str, Any], settings: Settings | None, found: Findings) -> None:
    """The numbers of every stage.

    Args:
        body: of a record of the right form.
        settings: its own; None where they are not known.
        found: is added to.
    """
    for place, stage in enumerate(body["stages"]):
        where, evidence = f"stages[{place}].evidence", stage["evidence"]
        there = [name for name in COVERAGE if name in evidence]
        if there and len(there) < len(COVERAGE):
            lacking = sorted(set(COVERAGE) - set(there))
            found.add(where, f"lacks {', '.join(lacking)}")
        elif there and _numbers(where, evidence, found):
            _coverage(where, evidence, found)
            if stage["kept"] < stage["tokens"]:
                _rounds(where, stage, len(body["images"]), settings, found)
            _banks(where, stage, body, settings, found)
        _queries(where, stage, settings, found)
        _target(where, evidence, found)


def _numbers(where: str, evidence: Mapping[str, Any], found: Findings) -> bool:
    """Whether there are as many numbers as banks, and no number is missing."""
    count, banks = len(found), evidence["banks"]
    found.same(f"{where}.banks", banks, list(BANKS))
    for name in COVERAGE:
        value = evidence[name]
        if name.startswith("bank_") and len(value) != len(banks):
            found.add(f"{where}.{name}", f"{len(value)} numbers for {len(banks)} banks")
        for place, one in enumerate(value if isinstance(value, list) else [value]):
            if one is None or (not isinstance(one, str) and not 0 <= one <= MOST):
                spot = f"[{place}]" if isinstance(value, list) else ""
                found.add(f"{where}.{name}{spot}", f"{shown(one)}; allowed are 0 to {MOST:g}")
    return len(found) == count


def _coverage(where: str, e: Mapping[str, Any], found: Findings) -> None:
    """Sums and quotients of numerators and denominators."""
    found.close(
        f"{where}.value", e["value"], math.fsum(e["bank_numerator"]), SUMMED, "bank_numerator"
    )
    total = math.fsum(e["bank_denominator"])
    found.close(f"{where}.total", e["total"], total, source="bank_denominator")
    ratio = e["value"] / e["total"] if e["total"] else 1.0
    found.close(f"{where}.ratio", e["ratio"], ratio, source="value and total")
    for b in range(len(e["banks"])):
        over, under = e["bank_numerator"][b], e["bank_denominator"][b]
        saturation = over / under if under else 1.0
        both = "bank_numerator and bank_denominator"
        found.close(
            f"{where}.bank_saturation[{b}]", e["bank_saturation"][b], saturation, source=both
        )
        share, source = under / (total or 1.0), "bank_denominator"
        found.close(f"{where}.bank_share[{b}]", e["bank_share"][b], share, source=source)
        for name, one, most in (
            ("bank_numerator", over, under),
            ("bank_denominator", under, e["bank_deployed"][b]),
            ("bank_deployed", e["bank_deployed"][b], e["bank_nominal"][b]),
            ("bank_active", e["bank_active"][b], e["bank_rows"][b]),
        ):
            if one > most * (1 + SUMMED):
                found.add(f"{where}.{name}[{b}]", f"{shown(one)} is above {shown(most)}")
    if e["start_value"] > e["value"] * (1 + SUMMED):
        found.add(f"{where}.start_value", f"{shown(e['start_value'])} of {shown(e['value'])}")


def _rounds(
    where: str, stage: Mapping[str, Any], images: int, settings: Settings | None, found: Findings
) -> None:
    """c_B from its rounds, and as many rounds as the solver takes."""
    e, left = stage["evidence"], 1.0
    for place, share in enumerate(e["progress"]):
        if share > 1:
            found.add(f"{where}.progress[{place}]", f"{shown(share)} is above 1")
        left *= 1.0 - share
    if abs(e["certificate"] - (1.0 - left)) > EXACT:
        found.add(
            f"{where}.certificate",
            f"{shown(e['certificate'])}, recomputed {shown(1.0 - left)} from progress",
        )
    if settings is None:
        return
    first = images if images > 1 else 0
    rounds = -(-(stage["kept"] - first) // settings.solver_batch(stage["tokens"]))
    if len(e["progress"]) != rounds:
        found.add(f"{where}.progress", f"{len(e['progress'])} rounds, recomputed {rounds}")
    if images == 1 and e["start_value"]:
        found.add(f"{where}.start_value", f"{shown(e['start_value'])}, recomputed 0")


def _banks(
    where: str,
    stage: Mapping[str, Any],
    body: Mapping[str, Any],
    settings: Settings | None,
    found: Findings,
) -> None:
    """Sizes and masses of the banks."""
    e, tokens = stage["evidence"], stage["tokens"]
    if settings is None or tokens > settings.long_prefix:
        return
    found.same(f"{where}.bank_rows[1]", e["bank_rows"][1], tokens)
    if all(_still(image) for image in body["images"]):
        landmarks = len(body["images"]) * settings.landmark_side**2
        found.same(f"{where}.bank_rows[2]", e["bank_rows"][2], landmarks)
    views = e["queries_read"] * len(e["blocks"]) if "queries_read" in e and "blocks" in e else 0
    if views and e["bank_rows"][0] % e["queries_read"]:
        found.add(
            f"{where}.bank_rows[0]",
            f"{e['bank_rows'][0]}, no multiple of {e['queries_read']} queries",
        )
    masses = {1: settings.appearance_mass, 2: settings.spatial_mass}
    for b, mass in masses.items():
        nominal, rows = e["bank_nominal"][b], e["bank_rows"][b]
        if nominal not in (0, mass):
            found.close(f"{where}.bank_nominal[{b}]", nominal, mass)
        found.same(f"{where}.bank_active[{b}]", e["bank_active"][b], rows if nominal else 0)
        found.close(f"{where}.bank_deployed[{b}]", e["bank_deployed"][b], nominal, SUMMED)
    if e["bank_nominal"][0] not in (0, 1):
        found.same(f"{where}.bank_nominal[0]", e["bank_nominal"][0], 1.0)


def _still(image: Mapping[str, Any]) -> bool:
    """Whether an image has no time axis."""
    places = image.get("coordinates")
    return len(image["grid"]) == 2 if not places else len(places[0]) == 2


def _queries(
    where: str, stage: Mapping[str, Any], settings: Settings | None, found: Findings
) -> None:
    """How many prompt rows were read, and of which blocks."""
    e = stage["evidence"]
    if "queries_potential" in e and "queries_read" in e:
        read, potential = e["queries_read"], e["queries_potential"]
        if read > potential:
            found.add(f"{where}.queries_read", f"{read} of {potential}")
        if settings is not None:
            found.same(
                f"{where}.queries_read",
                read,
                min(potential, settings.max_queries),
                "queries_potential",
            )
        if "queries_bounded" in e:
            found.same(
                f"{where}.queries_bounded", e["queries_bounded"], read < potential, "queries_read"
            )
    if "blocks" in e:
        p = stage["boundary"]
        found.same(f"{where}.blocks", e["blocks"], [p, *range(max(p - 2, 0), p)])
    if e.get("finite") is False:
        found.add(f"{where}.finite", "states or coverage are not finite")


def _target(where: str, evidence: Mapping[str, Any], found: Findings) -> None:
    """A budget by coverage was reached, or not, by the ratio that stands there."""
    if not {"target", "reached", "ratio"} <= evidence.keys() or evidence["ratio"] is None:
        return
    reached = evidence["ratio"] >= (evidence["target"] or 0.0) * (1 - EXACT)
    if reached != evidence["reached"]:
        found.same(f"{where}.reached", evidence["reached"], reached)
