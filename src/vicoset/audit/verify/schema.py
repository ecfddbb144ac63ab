"""Schema 1 of a record, as data; ``docs/records.md`` shows these tables."""

from __future__ import annotations

from collections.abc import Iterator

from vicoset.audit.verify.kinds import (
    COUNT,
    HEX,
    MAYBE_THINGS,
    MEASURED,
    NAMED,
    NUMBER,
    SHARE,
    TEXT,
    THINGS,
    TRUTH,
    WHOLE,
    Field,
    Many,
    Object,
    title,
)

VERSION = 1
_COMPRESSED = "where the run had a plan"
_COVERS = "selectors that cover, audit light or full"
_VIEWS = "selectors that read views"
_TOKENS = "unless the picture itself was made smaller"

METHOD = Object(
    "method",
    {
        "name": Field(TEXT, "as registered"),
        "class": Field(TEXT, "of the program"),
        "fields": Field(THINGS, "its numbers"),
    },
)
PLANNED = Object(
    "planned stage",
    {
        "boundary": Field(COUNT, "p: it compacts before this block"),
        "selector": Field(METHOD, "chooses what stays"),
        "realiser": Field(METHOD, "decides what each carrier holds"),
        "keep": Field(
            MAYBE_THINGS,
            "the stage's own budget, by the names of `Keep` or `Derived`; null for the run's",
        ),
    },
)
PLAN = Object(
    "plan",
    {
        "name": Field(TEXT, "as it was asked for"),
        "stages": Field(Many(PLANNED), "in order"),
    },
)
IMAGE = Object(
    "image",
    {
        "tokens": Field(COUNT, "its visual tokens"),
        "grid": Field(
            Many(COUNT),
            "[rows, columns] or [frames, rows, columns], when its tokens "
            "are all cells in row-major order",
            "one of the two",
        ),
        "coordinates": Field(
            Many(Many(NUMBER)), "(y, x) or (t, y, x) of every token in [0, 1]", "one of the two"
        ),
        "runs": Field(
            Many(Many(COUNT)),
            "[first position, count] of every unbroken stretch in the "
            "sequence, padding not counted",
        ),
    },
)
KV = Object(
    "cache",
    {
        "bytes": Field(COUNT, "that the prompt's keys and values take"),
        "full_bytes": Field(COUNT, "that they would take uncompressed"),
        "kind": Field(TEXT, "dynamic or static", "with a cache"),
        "rows": Field(COUNT, "of the batch; bytes are one row's share", "with a cache"),
        "length": Field(COUNT, "positions of the batch's longest row", "with a cache"),
        "compact": Field(Many(COUNT), "the same behind every stage", "with a cache"),
        "entries": Field(Many(COUNT), "that each block holds", "with a cache"),
        "entry_bytes": Field(Many(COUNT), "of one entry, by block", "with a cache"),
    },
)
EVIDENCE = Object(
    "evidence",
    {
        "value": Field(MEASURED, "F(S)", _COVERS),
        "total": Field(MEASURED, "F(V)", _COVERS),
        "ratio": Field(MEASURED, "F(S)/F(V)", _COVERS),
        "certificate": Field(MEASURED, "c_B = 1 - prod(1 - q_t)", _COVERS),
        "progress": Field(Many(MEASURED), "q_t of every round", _COVERS),
        "start_value": Field(MEASURED, "F(S_0)", _COVERS),
        "banks": Field(Many(TEXT), "names, in the order of all that follows", _COVERS),
        "bank_numerator": Field(Many(MEASURED), "F_b(S)", _COVERS),
        "bank_denominator": Field(Many(MEASURED), "F_b(V)", _COVERS),
        "bank_saturation": Field(Many(MEASURED), "c_b, 1 where nothing is attainable", _COVERS),
        "bank_share": Field(Many(MEASURED), "omega_b = F_b(V)/F(V)", _COVERS),
        "bank_nominal": Field(Many(MEASURED), "beta_b, the mass a bank was given", _COVERS),
        "bank_deployed": Field(Many(MEASURED), "the mass of its active clients", _COVERS),
        "bank_rows": Field(Many(COUNT), "M_b, potential clients", _COVERS),
        "bank_active": Field(Many(COUNT), "clients that carry mass", _COVERS),
        "queries_read": Field(COUNT, "T, prompt rows that were read", _VIEWS),
        "queries_potential": Field(COUNT, "of so many that can see the image", _VIEWS),
        "queries_bounded": Field(TRUTH, "whether `max_queries` left some out", _VIEWS),
        "blocks": Field(Many(COUNT), "of the views, the current one first", _VIEWS),
        "finite": Field(TRUTH, "whether states and coverage are", _VIEWS),
        "target": Field(MEASURED, "the coverage asked for", "budgets by coverage"),
        "reached": Field(TRUTH, "whether the ratio reaches it", "budgets by coverage"),
    },
    open=True,
)
REALISED = Object(
    "realised",
    {
        "carrier": Field(
            Many(WHOLE),
            "for every token of the stage its carrier's place in `indices`; -1 for a deleted one",
        ),
        "mass": Field(Many(MEASURED), "for every token of the stage the mass it brings"),
        "gate": Field(MEASURED, "s_x"),
    },
)
STAGE = Object(
    "stage",
    {
        "boundary": Field(COUNT, "p"),
        "selector": Field(TEXT, "by name"),
        "realiser": Field(TEXT, "by name"),
        "requested": Field(TEXT, "the budget as asked for"),
        "tokens": Field(COUNT, "visual tokens before the stage"),
        "kept": Field(COUNT, "realised K"),
        "indices": Field(Many(COUNT), "kept tokens among the prompt's N, ascending"),
        "image_ids": Field(Many(COUNT), "image of each kept token", _TOKENS),
        "places": Field(Many(COUNT), "its position in the sequence, padding not counted", _TOKENS),
        "positions": Field(
            Many(Many(NUMBER)), "its multimodal position in the prompt: a list per axis", _TOKENS
        ),
        "seconds": Field(NUMBER, "that the stage took", "where the clock was read"),
        "evidence": Field(EVIDENCE, "what the methods measured"),
        "realised": Field(REALISED, "where every token went", "audit full"),
    },
)
MODEL = Object(
    "model",
    {"class": Field(TEXT, "of the program"), "type": Field(TEXT, "of the configuration")},
)
VERSIONS = Object(
    "versions",
    {name: Field(TEXT, "as installed") for name in ("vicoset", "torch", "transformers", "python")},
)
RECORD = Object(
    "record",
    {
        "schema": Field(COUNT, "1"),
        "about": Field(THINGS, "what the caller knew, kept as it was given"),
        "plan": Field(PLAN, "what was run", _COMPRESSED),
        "keep": Field(THINGS, "the run's budget, by the names of `Keep`", _COMPRESSED),
        "settings": Field(THINGS, "the method's numbers, by the names of `Settings`", _COMPRESSED),
        "model": Field(MODEL, "class and type of the model", _COMPRESSED),
        "versions": Field(VERSIONS, "of what computed it", _COMPRESSED),
        "digest": Field(HEX, "of plan and settings"),
        "prompt": Field(NAMED, "of the row's token ids, padding not counted"),
        "prefix": Field(TEXT, "gathered, dense or replay"),
        "positions": Field(
            TEXT, "original, or packed where blocks behind a boundary count what was kept from 0"
        ),
        "attention": Field(TEXT, "the decoder's kernel"),
        "dtype": Field(TEXT, "of the states"),
        "device": Field(TEXT, "that computed it"),
        "tokens": Field(COUNT, "N, visual tokens of the row"),
        "images": Field(Many(IMAGE), "in order"),
        "kept": Field(COUNT, "K behind the last stage"),
        "length": Field(COUNT, "prompt positions before compaction, padding not counted"),
        "compact_length": Field(COUNT, "behind the last stage"),
        "depth": Field(COUNT, "L, blocks of the decoder"),
        "work": Field(COUNT, "W, visual token-layer work"),
        "work_share": Field(SHARE, "W / (L N); 1 without an image"),
        "kv": Field(KV, "what the prompt takes in the cache"),
        "stages": Field(
            Many(STAGE), "the compactions; a planned one that had nothing to compress is not there"
        ),
        "notes": Field(Many(TEXT), "what a reader should know"),
        "fields": Field(THINGS, "eight hex digits of every field"),
    },
)
OBJECTS = (RECORD, PLAN, PLANNED, METHOD, MODEL, VERSIONS, IMAGE, KV, STAGE, EVIDENCE, REALISED)


def tables() -> Iterator[str]:
    """Every object as a section of Markdown."""
    for one in OBJECTS:
        rows = [
            f"| `{name}` | {title(field.kind)} | {_sentence(field)} |"
            for name, field in one.fields.items()
        ]
        yield "\n".join([f"### {one.name}", "", "| field | holds | what |", "|---|---|---|", *rows])


def _sentence(field: Field) -> str:
    return f"{field.what} ({field.where})" if field.where else field.what
