"""Write docs/tiny.md: `make docs-tiny`.

Everything that the page says of a training run was collected from the run's folder into
docs/tiny.json by `python -m docs.make_tiny RUN ...`: the journal, the answers of the exam, and how
alike the visual states are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vicoset.evaluate.folder import complete, folders
from vicoset.evaluate.statistics import UnitSums
from vicoset.evaluate.statistics.draws import Draws
from vicoset.tiny import bench, configs
from vicoset.tiny.train.journal import lines
from vicoset.tiny.train.loop import JOURNAL, STATE
from vicoset.tiny.train.recipe import Phase, Weights, recipe

HERE = Path(__file__).parent
PAGE, FACTS, TABLES = HERE / "tiny.md", HERE / "tiny.json", HERE / "tiny"
REPLICATES, ALIKE = 20_000, (5, 25, 50, 75, 95)
EXAM = "exam.jsonl"
BARS = dict.fromkeys(bench.TASKS, 0.95) | dict.fromkeys(("comparison", "counting", "relation"), 0.9)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def collect(run: Path) -> dict[str, Any]:
    """What a finished run's folder says.

    Args:
        run: with the checkpoint, the journal, the exam's answers and the model.
    """
    state = torch.load(run / STATE)
    journal = lines(run / JOURNAL)
    phases = {phase.name: 0.0 for phase in recipe(state["family"])}
    before = 0.0
    for line in journal:
        phases[line["phase"]] += line["seconds"] - before
        before = line["seconds"]
    curve = [
        {"minutes": round(line["seconds"] / 60, 2), "phase": line["phase"]}
        | {key: round(value, 3) for key, value in line.items() if key in bench.TASKS}
        for line in journal
        if line["step"] % 20 == 0
    ]
    return {
        "family": state["family"],
        "seed": state["seed"],
        "minutes": {name: round(seconds / 60, 1) for name, seconds in phases.items()},
        "curve": curve,
        "exam": examined(state["family"], run / EXAM),
        "alike": alike(state["family"], run / "model"),
    }


def examined(family: str, path: Path) -> dict[str, dict[str, list[float]]]:
    """Condition -> task -> accuracy, its 95% interval and the number of questions.

    Args:
        family: whose items they are.
        path: lines of ``vicoset.tiny.train.exam``.
    """
    units = {item.item_id: item.unit_id for item in bench.items(family)}
    answers: dict[str, dict[str, dict[str, list[float]]]] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        by_unit = answers.setdefault(line["task"], {}).setdefault(line["condition"], {})
        by_unit.setdefault(units[line["item"]], []).append(float(line["right"]))
    found: dict[str, dict[str, list[float]]] = {}
    for task, conditions in answers.items():
        for condition, numbers in shares(task, conditions).items():
            count = sum(map(len, conditions[condition].values()))
            found.setdefault(condition, {})[task] = [*numbers, count]
    return found


def shares(task: str, rows: dict[str, dict[str, list[float]]]) -> dict[str, list[float]]:
    """Row -> share of ones with its 95% interval; pictures are resampled, for all rows together.

    Args:
        task: fixes the draws.
        rows: row -> picture -> a 0 or 1 for each question that counts.
    """
    names, units = tuple(rows), sorted({unit for by_unit in rows.values() for unit in by_unit})
    values = np.array(
        [
            [
                [sum(rows[name].get(unit, ())) for name in names],
                [len(rows[name].get(unit, ())) for name in names],
            ]
            for unit in units
        ],
        np.float64,
    )
    zeros = np.zeros(len(units), np.intp)
    sums = UnitSums(task, names, ("",), zeros, ("ones", "all"), values)
    whole = sums.totals(stratified=False)
    drawn = [r["ones"] / r["all"] for _, r in sums.resampled(REPLICATES, 0, False)]
    draws = Draws(names, whole["ones"] / whole["all"], np.concatenate(drawn))
    return {
        name: [round(v, 4) for v in (one.value, one.low, one.high)]
        for name, one in draws.estimates().items()
    }


def supports(out: Path, family: str) -> str:
    """Accuracy and evidence recall of every plan of a study whose runs stored their supports.

    Args:
        out: the study's runs, of tinybench.
        family: of the model.
    """
    items = {item.item_id: item for item in bench.items(family)}
    right: dict[str, dict[str, dict[str, list[float]]]] = {}
    recall: dict[str, dict[str, dict[str, list[float]]]] = {}
    for folder in folders(out):
        info = folder.facts["info"]
        row = f"{info['plan']} {info['keep']}".strip()
        for entry in complete(folder):
            item = items[entry.sample_id]
            unit = right.setdefault(item.task, {}).setdefault(row, {})
            unit.setdefault(item.unit_id, []).append(entry.score)
            if entry.support and item.tokens:
                kept = set(entry.support[-1])
                unit = recall.setdefault(item.task, {}).setdefault(row, {})
                unit.setdefault(item.unit_id, []).append(float(kept.issuperset(item.tokens)))
    scores = {task: shares(task, rows) for task, rows in right.items()}
    there = {task: shares(task, rows) for task, rows in recall.items()}
    rows = sorted(scores[bench.TASKS[0]], key=_order)
    lines_ = [
        "| plan | K | " + " | ".join(bench.TASKS) + " |",
        "| --- | ---: |" + " ---: |" * len(bench.TASKS),
    ]
    for row in rows:
        plan, _, keep = row.partition(" ")
        cells = []
        for task in bench.TASKS:
            value, low, high = (100 * v for v in scores[task][row])
            kept = f", {100 * there[task][row][0]:.0f}" if row in there.get(task, {}) else ""
            cells.append(f"**{value:.0f}** ({low:.0f} to {high:.0f}){kept}")
        lines_.append(f"| `{plan}` | {keep} | {' | '.join(cells)} |")
    return "\n".join(lines_) + "\n"


def _order(row: str) -> tuple[int, str]:
    """Full first, then the largest budgets."""
    plan, _, keep = row.partition(" ")
    return -int(keep or 10_000), plan


def alike(family: str, model: Path, images: int = 6) -> dict[str, list[float]]:
    """Boundary -> percentiles of every visual state's largest cosine to another of its picture.

    Args:
        family: of the model.
        model: its directory.
        images: pictures per kind.
    """
    from vicoset.runtime.checkpoint import load

    loaded = load(model, dtype=torch.float32)
    token = loaded.model.config.image_token_id
    found: dict[int, list[torch.Tensor]] = {}
    firsts = {item.unit_id: item for item in bench.items(family, images=images, questions=2)}
    for item in firsts.values():
        asked = [{"type": "image"}, {"type": "text", "text": item.question}]
        text = loaded.processor.apply_chat_template(
            [{"role": "user", "content": asked}], add_generation_prompt=True
        )
        inputs = loaded.processor(images=[item.image()], text=[text], return_tensors="pt")
        with torch.inference_mode():
            states = loaded.model(**inputs, output_hidden_states=True).hidden_states
        visual = inputs["input_ids"][0] == token
        for p in boundaries():
            x = torch.nn.functional.normalize(states[p][0, visual], dim=-1)
            near = x @ x.T
            near.fill_diagonal_(-1.0)
            found.setdefault(p, []).append(near.max(-1).values)
    levels = torch.tensor([level / 100 for level in ALIKE])
    return {
        str(p): [round(v, 3) for v in torch.cat(parts).quantile(levels).tolist()]
        for p, parts in found.items()
    }


def boundaries() -> tuple[int, ...]:
    """The decoder's input, and p of ``gmc-h2`` and of ``gmc-l16`` in a decoder of this depth."""
    return 0, 2, round(16 / 28 * configs.BLOCKS)


def majority(family: str) -> dict[str, float]:
    """Task -> how often the commonest answer is right."""
    found: dict[str, Counter[str]] = {}
    for item in bench.items(family):
        found.setdefault(item.task, Counter())[item.answer] += 1
    return {t: round(max(c.values()) / c.total(), 4) for t, c in found.items()}


def page(facts: dict[str, Any]) -> str:
    """The page.

    Args:
        facts: of docs/tiny.json.
    """
    parts = [_HEAD.format(sizes=_sizes())]
    for family in configs.FAMILIES:
        runs = [run for run in facts["runs"] if run["family"] == family]
        if not runs:
            continue
        title = {"qwen": "The model `qwen`", "llava": "The model `llava`"}[family]
        parts.append(f"## {title}\n\n{_recipe(family, runs)}")
        parts += [_learning(run) for run in runs]
        parts.append(_exam(facts["majority"][family], runs))
        parts.append(_alike(runs))
        found = {name: facts.get(name, {}) for name in _STUDIES}
        parts += [_STUDIES[n] + table[family] for n, table in found.items() if family in table]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def curves(run: dict[str, Any]) -> str:
    """The learning curves of a run as a picture, SVG.

    Args:
        run: of the facts.
    """
    points = [point for point in run["curve"] if len(point) > 2]
    wide, high, left, top = 640, 240, 44, 12
    end = max(point["minutes"] for point in run["curve"])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide + 170} {high + 60}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{wide + 170}" height="{high + 60}" fill="white"/>',
    ]

    def at(minutes: float, share: float) -> str:
        return f"{left + minutes / end * (wide - left):.1f},{top + (1 - share) * high:.1f}"

    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = at(0, share).split(",")
        parts.append(f'<line x1="{x}" y1="{y}" x2="{wide}" y2="{y}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{left - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{share:g}</text>'
        )
    previous = None
    for point in run["curve"]:
        if point["phase"] != previous:
            x, _ = at(point["minutes"], 0).split(",")
            parts.append(f'<line x1="{x}" y1="{top}" x2="{x}" y2="{top + high}" stroke="#888" '
                         'stroke-dasharray="3 3"/>')  # fmt: skip
            parts.append(f'<text x="{x}" y="{top + high + 16}">{point["phase"]}</text>')
            previous = point["phase"]
    phases = list(dict.fromkeys(point["phase"] for point in points))
    for number, task in enumerate(bench.TASKS):
        colour = COLOURS[number]
        for phase in phases:  # no line across a phase without questions
            mine = [p for p in points if p["phase"] == phase and task in p]
            line = " ".join(at(p["minutes"], p[task]) for p in mine)
            parts.append(
                f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
            )
        y = top + 18 + 20 * number
        parts.append(f'<line x1="{wide + 14}" y1="{y - 4}" x2="{wide + 38}" y2="{y - 4}" '
                     f'stroke="{colour}" stroke-width="3"/>')  # fmt: skip
        parts.append(f'<text x="{wide + 44}" y="{y}">{task}</text>')
    parts.append(f'<text x="{left}" y="{high + 48}">minutes of training, 0 to {end:.0f}; share of '
                 "training questions answered exactly</text></svg>")  # fmt: skip
    return "\n".join(parts) + "\n"


def _sizes() -> str:
    rows = []
    for family in configs.FAMILIES:
        model = configs.empty(family)
        count = sum(value.numel() for value in model.parameters())
        size = bench.RESOLUTIONS[family]
        rows.append(
            f"| `{family}` | `{type(model).__name__}` | {size.pixels} x {size.pixels} | "
            f"{size.tokens:,} | {configs.BLOCKS} | {count / 1e6:.2f} M | {count * 2 / 1e6:.1f} MB |"
        )
    return "\n".join(rows)


def _recipe(family: str, runs: list[dict[str, Any]]) -> str:
    seeds = [run["seed"] for run in runs]
    heads = " | ".join(f"minutes, seed {seed}" for seed in seeds)
    lines_ = [
        f"| phase | pictures | a step | steps | minimised | {heads} |",
        "| --- | --- | --- | ---: | --- |" + " ---: |" * len(runs),
    ]
    for phase in recipe(family):
        times = " | ".join(f"{run['minutes'][phase.name]:.1f}" for run in runs)
        lines_.append(f"{_phase(phase)} | {times} |")
    total = " | ".join(f"{sum(run['minutes'].values()):.0f}" for run in runs)
    steps = sum(phase.steps for phase in recipe(family))
    alone = sum(phase.steps for phase in recipe(family) if phase.alone)
    lines_.append(f"| all | | | {steps:,} | answers alone: {alone:,} | {total} |")
    return "\n".join(lines_) + "\n"


def _phase(phase: Phase) -> str:
    sheet = phase.sheet
    kind = "pictures" if sheet.pixels else "pages given by what cells show"
    weights = phase.weights
    names = [f"{n} {v:g}" for n, v in zip(Weights._fields, weights, strict=True) if v]
    what = "answers alone" if phase.alone else ", ".join(names)
    return (
        f"| {phase.name} | {kind}, {sheet.side} x {sheet.side} cells | {sheet.pictures} pictures, "
        f"{sheet.slots} questions each | {phase.steps:,} | {what}"
    )


def _learning(run: dict[str, Any]) -> str:
    name = f"{run['family']}, seed {run['seed']}"
    notes = "".join(f"\n{note}\n" for note in run.get("notes", ()))
    return f"{notes}\n![Learning curves of {name}](tiny/curves-{run['family']}-{run['seed']}.svg)\n"


def _exam(commonest: dict[str, float], runs: list[dict[str, Any]]) -> str:
    heads = " | ".join(f"seed {run['seed']} | another picture | blank" for run in runs)
    lines_ = [
        "Test questions answered exactly, in percent with 95% intervals (pictures resampled, "
        f"20,000 replicates; `python -m vicoset.tiny.train.exam FOLDER/model FOLDER/{EXAM}` asks "
        "them, `python -m docs.make_tiny FOLDER` counts):\n",
        f"| task | questions | {heads} | commonest answer |",
        "| --- | ---: |" + " ---: | ---: | ---: |" * len(runs) + " ---: |",
    ]
    for task in bench.TASKS:
        cells = []
        for run in runs:
            value, low, high, _ = run["exam"]["picture"][task]
            cells.append(f"**{100 * value:.1f}** ({100 * low:.1f} to {100 * high:.1f})")
            cells += [f"{100 * run['exam'][c][task][0]:.1f}" for c in ("another", "blank")]
        count = int(runs[0]["exam"]["picture"][task][3])
        row = f"| {task} | {count} | {' | '.join(cells)} | {100 * commonest[task]:.1f} |"
        lines_.append(row)
    below = [
        f"{task} ({100 * BARS[task]:.0f}%)"
        for task in bench.TASKS
        if min(run["exam"]["picture"][task][0] for run in runs) < BARS[task]
    ]
    if below:
        lines_.append(
            f"\nNot there yet, with what was aimed at: {', '.join(below)}. Read what is said of "
            "methods on these tasks beside Full's own row, and leave them out of headlines."
        )
    return "\n".join(lines_) + "\n"


def _alike(runs: list[dict[str, Any]]) -> str:
    heads = " | ".join(f"{level}%" for level in ALIKE)
    lines_ = [
        "How alike visual states are: percentiles of every state's largest cosine to another of "
        "the same picture.\n",
        f"| seed | before block | {heads} |",
        "| ---: | ---: |" + " ---: |" * len(ALIKE),
    ]
    for run in runs:
        for p, values in run["alike"].items():
            cells = " | ".join(f"{value:.3f}" for value in values)
            lines_.append(f"| {run['seed']} | {p} | {cells} |")
    lines_.append(
        "\nMost states have a near twin: the tower was taught one vector for every cell without a "
        "sign, so cluttered backgrounds look alike to the decoder although they do not on the "
        "picture. That flatters whatever covers or spreads over scores that rank, GMC included."
    )
    return "\n".join(lines_) + "\n"


_STUDIES = {
    "supports": """\
### Supports

What `vicoset evaluate study fixed-k --model tiny --tasks tinybench --images 4 --support --seeds 0
--dtype float32` answered, in percent exactly, with 95% intervals (pictures resampled); behind the
comma the share of questions whose every evidence box keeps a carrier (a question without evidence,
such as one about an object that is not there, does not count). Plans with `+drop` delete what is
not kept; `gmc-h2` (before block 2) and `gmc-l16` (before block 5) move it into the carriers;
`gmc[-message,-spatial]` covers appearance alone. Four pictures of each kind are few: read the
intervals.

""",
    "depths": """\
### Where in depth answers are read

The same study with `--keeps 128 --without downsample` and `random+drop@p,fastv+drop@p` of every
p as `--methods`, random and attention supports before each block: from the block on at which a
support that knows nothing of the question does no more harm, the answer has been read.

""",
}

_HEAD = """\
# The bundled models

<!-- `make docs-tiny` writes this page; edit docs/make_tiny.py instead. -->

The package ships small models, trained from nothing on drawn pictures, so that everything can be
tried and compared without a model hub. They are standard checkpoints of stock classes, bfloat16:

| name | class | pictures | N | blocks | parameters | file |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
{sizes}

<!-- no-run -->
```python
from vicoset.tiny import load_tiny

model, processor = load_tiny("qwen")
```

They read the seven tasks of `tinybench` and nothing else: entries of documents, cells of tables,
bars of charts, which of two bars is taller, whether an object is there, how many, and where beside
another. Words they never saw are unknown to them.

## How they were trained

`python -m vicoset.tiny.train FOLDER --family qwen --seed 0` trains a model from nothing on one core
and writes `FOLDER/model`; ended at any point, the same command goes on. Training pictures and test
pictures differ by construction: the split is a hash of what is drawn.

1. *signs*, *places*: the decoder reads pages that are given by what their cells show, a fixed
   random vector for each word. Three helps carry it over the plateau: linear probes that read off
   the states before block 4 what belongs to a cell (the key of a digit, the tick of a bar, an
   object's place), two heads (blocks 4 and 5) that point to the cell which a token is about, and in
   *places* probes of where the two objects of a relation are.
2. *tower*: the vision tower and its projector learn to give those vectors for drawn pictures.
3. *objects*, *pages*: the decoder goes on with such pages, first mostly of objects, then whole
   ones, with the answers alone.
4. *whole*: everything goes on together, on whole pictures with the answers alone. From *objects* on
   there is no probe and no pointer, and attention is free.

Biases of a few query and key projections begin as offsets (the left neighbour, the row, the
column), and some queries and keys begin alike; both are starting points which training may leave.

Backgrounds are cluttered: gradients, textures, coloured and see-through panels, words and numbers
nobody asks for. The helps of the first phases put retrieval where the pointing heads are, and the
later phases did not have to keep it there; the table of accuracy against the boundary says where it
is. It is a fact about these models. It is no evidence about large ones.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Collect the named runs, then write the page and the pictures.

    Args:
        argv: arguments; the process's own by default.
    """
    parser = argparse.ArgumentParser(prog="python -m docs.make_tiny", description=__doc__)
    add = parser.add_argument
    add("runs", nargs="*", type=Path, help="folders of finished runs")
    add("--supports", type=Path, help="a study's runs, for the table of supports")
    add("--depths", type=Path, help="a study's runs, for the table of boundaries")
    add("--family", choices=configs.FAMILIES, default="qwen", help="of those studies")
    options = parser.parse_args(argv)
    facts = json.loads(FACTS.read_text(encoding="utf-8")) if FACTS.is_file() else {"runs": []}
    for run in options.runs:
        new = collect(run)
        same = (new["family"], new["seed"])
        kept = [old for old in facts["runs"] if (old["family"], old["seed"]) != same]
        facts["runs"] = sorted([*kept, new], key=lambda r: (r["family"], r["seed"]))
    for name in ("supports", "depths"):
        study = getattr(options, name)
        if study is not None:
            facts.setdefault(name, {})[options.family] = supports(study, options.family)
    facts["majority"] = {family: majority(family) for family in configs.FAMILIES}
    FACTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    TABLES.mkdir(exist_ok=True)
    for run in facts["runs"]:
        picture = TABLES / f"curves-{run['family']}-{run['seed']}.svg"
        picture.write_text(curves(run), encoding="utf-8")
    PAGE.write_text(page(facts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
