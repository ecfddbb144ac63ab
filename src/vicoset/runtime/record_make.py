"""The records of a prompt that a plan has run through."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from vicoset.models.layout import Layout
from vicoset.plan import Keep, Plan
from vicoset.runtime import decoding
from vicoset.runtime.prompt import Prompt
from vicoset.runtime.record import CacheRecord, Record, StageRecord, in_source_order
from vicoset.runtime.record_images import images_of, places_of, positions_of

if TYPE_CHECKING:
    from vicoset.runtime.engine import Engine


def records_of(engine: Engine, prompt: Prompt) -> list[Record]:
    """A record for each row; beams and repeated rows have one together.

    Args:
        engine: that ran the prompt.
        prompt: behind its forward.
    """
    assert prompt.attended is not None
    end = prompt.length - prompt.ahead
    attended = prompt.attended[:, :end].cpu()
    lengths = attended.sum(1).tolist()
    bytes_now, bytes_full = decoding.prompt_bytes(
        prompt.cache, prompt.length, prompt.ahead, prompt.done
    )
    rows = len(prompt.layouts)
    cache = _cache(prompt, end, rows)
    found = []
    for row, layout in list(enumerate(prompt.layouts))[:: prompt.copies]:
        stages = _stages(prompt, layout, attended[row], row)
        dropped = sum(stage.tokens - stage.kept for stage in stages)
        found.append(
            Record(
                plan=engine.plan.name,
                digest=engine.digest,
                prefix=engine.prefix if prompt.cache is not None else "replay",
                tokens=0 if layout is None else len(layout.visual),
                images=0 if layout is None else layout.images,
                length=int(lengths[row]),
                compact_length=int(lengths[row]) - dropped,
                depth=len(engine.layers),
                stages=stages,
                kv_bytes=bytes_now // rows,
                full_kv_bytes=bytes_full // rows,
                attention=str(engine.decoder.config._attn_implementation),
                dtype=str(engine.decoder.dtype).removeprefix("torch."),
                notes=_notes(engine.plan, engine.keep, layout, stages),
                positions=str(getattr(engine, "positions", "original")),
                device=prompt.attended.device.type,
                pictures=()
                if layout is None
                else images_of(layout, places_of(layout, attended[row])),
                cache=cache,
                request=engine.request,
                prompt=digest_of_ids(prompt.ids[row, :end].cpu()[attended[row]]),
            )
        )
    return found


def digest_of_ids(ids: Tensor) -> str:
    """16 hex digits of a row's token ids.

    Args:
        ids: [L] on the CPU, padding taken out.
    """
    text = ",".join(map(str, ids.tolist()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _stages(
    prompt: Prompt, layout: Layout | None, attended: Tensor, row: int
) -> tuple[StageRecord, ...]:
    if layout is None or not prompt.done:
        return ()
    return in_source_order(
        [done.stages[row] for done in prompt.done],
        layout.image_ids,
        places_of(layout, attended),
        positions_of(prompt.positions, layout.visual, row, len(prompt.layouts)),
    )


def _cache(prompt: Prompt, end: int, rows: int) -> CacheRecord | None:
    """What each block's cache holds behind the prompt."""
    layers: list[Any] = getattr(prompt.cache, "layers", [])
    entries, sizes, static = [], [], False
    for layer in layers:
        keys = getattr(layer, "keys", None)
        if not isinstance(keys, Tensor) or keys.ndim != 4 or not keys.shape[2]:
            return None
        own = type(layer).__name__ == "StaticLayer"
        static |= own
        entries.append(keys.shape[2] - (0 if own else prompt.ahead))
        sizes.append(2 * keys.numel() * keys.element_size() // keys.shape[2] // rows)
    if not entries:
        return None
    return CacheRecord(
        kind="static" if static else "dynamic",
        rows=rows,
        length=end,
        compact=tuple(_composed(prompt)),
        entries=tuple(entries),
        entry_bytes=tuple(sizes),
    )


def _composed(prompt: Prompt) -> list[int]:
    return [done.kept.length - prompt.ahead for done in prompt.done]


def _notes(
    plan: Plan, keep: Keep, layout: Layout | None, stages: Sequence[StageRecord]
) -> tuple[str, ...]:
    """What a reader should know of a row: rescaled presets, raised budgets, missed targets."""
    if layout is None:
        return plan.notes
    tokens, images = len(layout.visual), layout.images
    keeps = [stage.budget(keep, tokens, images) for stage in plan.stages]
    found = [own.note(tokens, images) for own in keeps]
    found += [stage.missed for stage in stages]
    return (*plan.notes, *dict.fromkeys(note for note in found if note))
