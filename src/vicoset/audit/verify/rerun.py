"""A record beside a second run of its request: everything that the record alone cannot show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vicoset.api import compress
from vicoset.audit.verify.counts import budget_of
from vicoset.audit.verify.problem import REFUSED, Findings, said, shown
from vicoset.core.settings import Settings
from vicoset.errors import PlanError
from vicoset.methods import registry
from vicoset.plan import Keep, Plan, Stage, digest_of_content
from vicoset.runtime.downsample import NAME as RESIZED
from vicoset.runtime.history import answer

CLOSE = {"float32": 1e-4, "float64": 1e-4}  # relative, of measured numbers; else:
COARSE = 2e-2
SHOWN = 5  # differences of one list that are named
_NEVER = ("about", "fields", "schema", "versions", "device", "notes", "kv")
_CACHE = ("kind", "length", "compact", "entries", "entry_bytes", "bytes", "full_bytes")


def rerun(
    body: Mapping[str, Any], model: Any, inputs: Mapping[str, Any], **options: Any
) -> Findings:
    """Run a record's request again and compare.

    Everything is compared but what another machine or another caller may change: ``about``,
    versions, device, times and, of a row that was not alone in its batch, the cache.

    Args:
        body: of a record that stands by itself.
        model: a stock model, outside of every context.
        inputs: of the prompt: one row, on the model's device.
        **options: more of ``compress``: its processor, its companions.
    """
    found = Findings()
    fresh = _again(body, model, inputs, found, options)
    if fresh is None:
        return found
    if body["prompt"] != fresh["prompt"]:
        found.add(
            "prompt",
            f"{shown(body['prompt'])}, and these image and question give {shown(fresh['prompt'])}",
        )
        return found
    tolerance = CLOSE.get(body["dtype"], COARSE)
    for name in [name for name in fresh if name not in _NEVER and name != "stages"]:
        found.under("", _differences(name, body.get(name), fresh[name], tolerance))
    _stages(body["stages"], fresh["stages"], tolerance, found)
    if body["kv"].get("rows") == 1 and body["kv"]["kind"] == "dynamic":
        for name in _CACHE:
            found.under("", _differences(f"kv.{name}", body["kv"][name], fresh["kv"].get(name), 0))
    return found


def _again(
    body: Mapping[str, Any],
    model: Any,
    inputs: Mapping[str, Any],
    found: Findings,
    options: Mapping[str, Any],
) -> dict[str, Any] | None:
    """The record of a second run; None, with a problem, where there can be none."""
    if "plan" not in body or body["plan"]["name"] == RESIZED:
        found.add("plan", "no plan ran, so there is nothing to run again")
        return None
    try:
        plan = plan_of_record(body["plan"])
        run = compress(
            model,
            plan,
            Keep(**body["keep"]),
            prefix=body["prefix"],
            positions=body["positions"],
            settings=Settings(**body["settings"]),
            audit=_audited(body),
            allow_uncertified=True,
            **options,
        )
    except REFUSED as error:
        found.add("plan", f"cannot be run on this model: {said(error)}")
        return None
    with run:
        answer(model, inputs, 1)
    fresh: dict[str, Any] = run.records[-1].to_json()
    return fresh


def _audited(body: Mapping[str, Any]) -> str:
    """How much of its evidence the record keeps."""
    if any("realised" in stage for stage in body["stages"]):
        return "full"
    measured = any("ratio" in stage["evidence"] for stage in body["stages"])
    return "light" if measured else "none"


def plan_of_record(content: Mapping[str, Any]) -> Plan:
    """The plan of a record, by the names and numbers of its registered methods.

    Args:
        content: the field ``plan``.
    """
    stages = [
        Stage(
            one["boundary"],
            _made(registry.selector, one["selector"]),
            _made(registry.realiser, one["realiser"]),
            budget_of(one["keep"]),
        )
        for one in content["stages"]
    ]
    plan = Plan(content["name"], tuple(stages))
    if plan.digest() != digest_of_content(content):
        raise PlanError(
            f"plan {content['name']!r} is made of methods that have other numbers here; allowed "
            "are those of the version that wrote the record. Verify with that version."
        )
    return plan


def _made(find: Any, written: Mapping[str, Any]) -> Any:
    fields = {k: _tupled(v) for k, v in written["fields"].items()}
    return type(find(written["name"]))(**fields)


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def _stages(
    old: list[dict[str, Any]], new: list[dict[str, Any]], tolerance: float, found: Findings
) -> None:
    found.same("stages", len(old), len(new))
    for place, (one, other) in enumerate(zip(old, new, strict=False)):
        for name in other:
            if name != "seconds" and (name in one or name == "evidence"):
                where = f"stages[{place}].{name}"
                found.under("", _differences(where, one[name], other[name], tolerance))
        for name in sorted(one.keys() - other.keys() - {"seconds"}):
            found.add(f"stages[{place}].{name}", "a second run does not have it")


def _differences(where: str, old: Any, new: Any, tolerance: float) -> Findings:
    """Where two values differ; of a list, the first places and how many more."""
    found = Findings()
    several = list(_apart(where, old, new, tolerance))
    for spot, one, other in several[:SHOWN]:
        found.add(spot, f"{shown(one)}, a second run gives {shown(other)}")
    if len(several) > SHOWN:
        found.add(where, f"{len(several) - SHOWN} more places differ")
    return found


def _apart(where: str, old: Any, new: Any, tolerance: float) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*new, *old]):
            yield from _apart(f"{where}.{name}", old.get(name), new.get(name), tolerance)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _apart(f"{where}[{place}]", one, other, tolerance)
    elif isinstance(old, float) and isinstance(new, float):
        if abs(old - new) > tolerance * max(abs(old), abs(new), 1e-6):
            yield where, old, new
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield where, old, new
