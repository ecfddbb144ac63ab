"""The paper's printed number for a row of ours, where the setting is the paper's."""

from __future__ import annotations

from collections.abc import Sequence

from vicoset.evaluate import paper
from vicoset.evaluate.tables.records import Found, Key

SETTINGS = {"Qwen2.5-VL-7B": (1296, 15876), "LLaVA-1.5-7B": (576,)}  # model -> N
COLUMNS = {"hallusionbench": "hallusion", "chair": "chair_s"}  # where the CSVs have other names


def setting(found: Found, mode: str) -> str | None:
    """The paper's model that a run can be set beside; None where there is none.

    Args:
        found: the records.
        mode: ``auto`` by the model's name and N, ``always`` by N alone, or ``never``.
    """
    if mode == "never" or found.tokens is None:
        return None
    bare = found.model.lower().replace("-instruct", "").replace("-hf", "")
    for name, tokens in SETTINGS.items():
        if found.tokens in tokens and (mode == "always" or name.lower() in bare):
            return name
    return None


def number(
    table: str, column: str, model: str, key: Key, tokens: int | None = None
) -> float | None:
    """A printed number.

    Args:
        table: name of the CSV.
        column: of it; a task's name is translated.
        model: as the paper prints it.
        key: of our row; the paper writes N as Full's budget, or repeats Full for every budget.
        tokens: N, of a table with several; the first that fits otherwise.
    """
    rows = [
        r for r in paper.table(table) if r.get("model", model) == model and r["plan"] == key.plan
    ]
    if tokens is not None:
        rows = [row for row in rows if row["tokens"] == str(tokens)]
    if key.keep:
        rows = [row for row in rows if row["keep"] == key.keep]
    if not rows:
        return None
    text = rows[0].get(COLUMNS.get(column, column), "")
    return float(text) if text else None


def macro_table(model: str, tasks: Sequence[str]) -> tuple[str, str] | None:
    """The CSV and the column whose macro is over exactly these tasks.

    Args:
        model: as the paper prints it.
        tasks: of the table.
    """
    asked = set(tasks)
    options = {
        "Qwen2.5-VL-7B": [
            ({"textvqa", "chartqa", "mme", "pope"}, "fixed_k", "macro"),
            ({"textvqa", "chartqa", "mme", "pope", "mmbench", "gqa"}, "general_qwen", "average"),
        ],
        "LLaVA-1.5-7B": [
            ({"mme", "pope", "mmbench", "gqa"}, "general_llava", "average"),
            (
                {"textvqa", "mme", "pope", "mmbench", "amber", "hallusionbench"},
                "llava",
                "mean_retention",
            ),
        ],
    }
    return next(((t, c) for names, t, c in options.get(model, []) if names == asked), None)
