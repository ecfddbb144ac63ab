"""A record as a JSON object: everything a stranger needs to check it, and nothing of the image."""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vicoset import __version__
from vicoset.core.settings import Settings
from vicoset.plan import Keep, Plan
from vicoset.runtime.record_lines import canonical

if TYPE_CHECKING:
    from vicoset.runtime.record import Record, StageRecord

SCHEMA = 1


@dataclass(frozen=True)
class Request:
    """What was asked for, the same for all records of a run.

    Attributes:
        plan: the plan, by the names and numbers of its methods.
        keep: the run's budget.
        settings: the method's numbers.
        model: class of the model and type of its configuration.
        versions: of what computed it.
    """

    plan: Mapping[str, Any]
    keep: Mapping[str, Any]
    settings: Mapping[str, Any]
    model: Mapping[str, Any]
    versions: Mapping[str, str]


def request_of(model: Any, plan: Plan, keep: Keep, settings: Settings) -> Request:
    """What all records of a run share."""
    import transformers

    return Request(
        plan=plan.to_json(),
        keep=keep.to_json(),
        settings=asdict(settings),
        model={"class": type(model).__name__, "type": str(model.config.model_type)},
        versions={
            "vicoset": __version__,
            "torch": str(torch.__version__),
            "transformers": str(transformers.__version__),
            "python": platform.python_version(),
        },
    )


def to_json(record: Record, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object of a record, in the order of ``docs/records.md``.

    Args:
        record: a row of a prompt.
        extra: what the caller knows: run, sample and unit ids, texts, score, diagnostics. It
            stands under ``about`` and is kept as it is.
    """
    request = record.request
    body: dict[str, Any] = {"schema": SCHEMA, "about": plain(extra or {})}
    if request is not None:
        body |= {name: plain(value) for name, value in vars(request).items()}
    body |= {
        "digest": record.digest,
        "prompt": record.prompt,
        "prefix": record.prefix,
        "positions": record.positions,
        "attention": record.attention,
        "dtype": record.dtype,
        "device": record.device,
        "tokens": record.tokens,
        "images": [image.to_json() for image in record.pictures],
        "kept": record.kept,
        "length": record.length,
        "compact_length": record.compact_length,
        "depth": record.depth,
        "work": record.work,
        "work_share": record.work_share,
        "kv": {
            "bytes": record.kv_bytes,
            "full_bytes": record.full_kv_bytes,
            **({} if record.cache is None else plain(asdict(record.cache))),
        },
        "stages": [_stage(stage) for stage in record.stages],
        "notes": list(record.notes),
    }
    body = plain(body)
    return body | {"fields": fingerprints(body)}


def _stage(stage: StageRecord) -> dict[str, Any]:
    found: dict[str, Any] = {
        "boundary": stage.boundary,
        "selector": stage.selector,
        "realiser": stage.realiser,
        "requested": stage.requested,
        "tokens": stage.tokens,
        "kept": stage.kept,
        "indices": stage.indices,
    }
    for name in ("image_ids", "places", "positions"):
        value = getattr(stage, name)
        if value is not None:
            found[name] = value
    if stage.seconds is not None:
        found["seconds"] = stage.seconds()
    found["evidence"] = stage.evidence
    if stage.realised is not None:
        found["realised"] = vars(stage.realised)
    return found


def fingerprints(body: Mapping[str, Any]) -> dict[str, str]:
    """Eight hex digits of every field, so that a changed one can be named.

    Args:
        body: of a record; the fields of a stage count one by one, as ``stages[0].indices``.
    """
    found: dict[str, str] = {}
    for name, value in body.items():
        if name == "fields":
            continue
        if name == "stages" and isinstance(value, list):
            for place, stage in enumerate(value):
                own = stage if isinstance(stage, dict) else {"": stage}
                found |= {f"stages[{place}].{key}": _short(part) for key, part in own.items()}
            found["stages"] = _short(len(value))
        else:
            found[name] = _short(value)
    return found


def _short(value: Any) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()[:8]


def plain(value: Any) -> Any:
    """JSON values: tensors and tuples as lists, None for what is no number."""
    if isinstance(value, Tensor):
        exact = value.dtype == torch.float64
        found = value.detach().cpu().tolist()
        return plain(found) if exact or not value.is_floating_point() else _nine(found)
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)


def _nine(value: Any) -> Any:
    """Nine digits, from which any float32 reads back."""
    if isinstance(value, list):
        return [_nine(part) for part in value]
    return float(f"{value:.9g}") if math.isfinite(value) else None
