"""``table``: a table from records, as Markdown, CSV and LaTeX."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vicoset.errors import RunError, SettingError
from vicoset.evaluate.folder import Folder
from vicoset.evaluate.folder import folders as folders_below
from vicoset.evaluate.statistics.study import REPLICATES, SEED
from vicoset.evaluate.texts import listed

if TYPE_CHECKING:
    from vicoset.evaluate.tables.records import Found

FORMS = {"markdown": "md", "csv": "csv", "latex": "tex"}
POINTS = {"coverage": ("gmc-h1", "gmc-h2", "gmc-l16"), "probe": ("gmc-l16",)}
OTHERS = ("gmc-h2", "gmc-l16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options.

    Args:
        parser: of the command.
    """
    parser.add_argument("kind", metavar="KIND", help="fixed-k, equal-work, factorial, ...")
    parser.add_argument("out", type=Path, help="directory of the runs")
    parser.add_argument("--tasks", default="", help="only these; all that Full answered by default")
    parser.add_argument("--model-name", default="", help="where runs of several models lie there")
    parser.add_argument("--methods", dest="plans", default="", help="only these plans")
    parser.add_argument("--keeps", dest="budgets", default="", help="only these budgets")
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that ``study`` and ``table`` share.

    Args:
        parser: of a command.
    """
    add = parser.add_argument
    add("--to", type=Path, help="write TO.md, TO.csv and TO.tex; else Markdown is printed")
    add("--format", choices=tuple(FORMS), default="markdown", help="of what is printed")
    add("--replicates", type=int, default=REPLICATES, help="of the bootstrap")
    add("--seed", type=int, default=SEED, help="of the bootstrap")
    add("--unit", default="unit", help="what is resampled: unit (the task's own) or sample")
    add("--alternative", default="two-sided", help="of the tests: two-sided, greater or less")
    add("--reference", default="gmc-h2", help="plan that the others are compared with")
    add("--paper", default="auto", choices=("auto", "always", "never"), help="printed numbers")
    add("--at", default=(), type=listed, help="points: presets such as gmc-h2, or gmc@3")
    add("--factors", default="", help="of factorial: message, history, population, ...")
    add("--selectors", default="", help="of selector-recovery, by name")
    add("--realisers", default="", help="of selector-recovery, by name")
    add("--ranks", default="", help="of probe")
    add("--probe-seeds", default="", help="of probe")


def run(options: argparse.Namespace) -> int:
    """Write a table from records.

    Args:
        options: of the command.
    """
    write(options, None, ())
    return 0


def points(options: argparse.Namespace) -> tuple[str, ...]:
    """The points that a study or a table looks at.

    Args:
        options: of a command.
    """
    return tuple(options.at) or POINTS.get(options.kind, OTHERS)


def pairs(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Selectors and realisers of a cross; empty for the usual ones.

    Args:
        options: of a command.
    """
    return listed(options.selectors), listed(options.realisers)


def factors(options: argparse.Namespace) -> tuple[str, ...]:
    """The factors of a design.

    Args:
        options: of a command.
    """
    from vicoset.evaluate.tables.factorial import DESIGN

    return tuple(listed(options.factors)) or DESIGN


def write(
    options: argparse.Namespace, folders: Sequence[Folder] | None, notes: Sequence[str]
) -> None:
    """Make the table and print or store it.

    Args:
        options: of ``table`` or ``study``.
        folders: the runs, where they are known; all below ``out`` otherwise.
        notes: methods that were left out, and why.
    """
    made = tables(options, folders)
    if notes:
        more = tuple(f"left out: {note}" for note in notes)
        made[0] = replace(made[0], notes=(*made[0].notes, *more))
    if options.to is None:
        print("\n".join(getattr(table, options.format)() for table in made))
        return
    options.to.parent.mkdir(parents=True, exist_ok=True)
    for form, ending in FORMS.items():
        if form == "csv":
            for number, table in enumerate(made):
                part = "" if not number else f"-{table.name}"
                _store(options.to.with_name(f"{options.to.name}{part}.csv"), table.csv())
            continue
        text = "\n".join(getattr(table, form)() for table in made)
        _store(options.to.with_name(f"{options.to.name}.{ending}"), text)


def _chosen(found: Found, options: argparse.Namespace) -> Found:
    """The rows that ``table`` was asked for; an equal-work table is asked for by its targets."""
    from vicoset.evaluate.tables.lineup import GMC
    from vicoset.evaluate.tables.records import FULL_KEY
    from vicoset.plan import names_in

    plans = names_in(getattr(options, "plans", ""))
    keeps = listed(getattr(options, "budgets", ""))
    free = set() if options.kind != "equal-work" else {k.plan for k in found.runs} - {*GMC}
    runs = {
        key: runs
        for key, runs in found.runs.items()
        if (not plans or key.plan in plans) and (not keeps or key.keep in keeps or key.plan in free)
    }
    if not {*runs} - {FULL_KEY}:
        plan = ", ".join(sorted({key.plan for key in found.runs}))
        keep = ", ".join(sorted({key.keep for key in found.runs if key.keep}))
        raise RunError(
            f"{found.out} holds no run of the plans {plans or 'of all'} with the budgets "
            f"{keeps or 'of all'}; there are the plans {plan} and the budgets {keep or 'none'}."
        )
    full = {FULL_KEY: found.runs[FULL_KEY]} if FULL_KEY in found.runs else {}
    return replace(found, runs={**full, **runs})


def tables(options: argparse.Namespace, folders: Sequence[Folder] | None) -> list[Any]:
    """The panels of a table.

    Args:
        options: of ``table`` or ``study``.
        folders: the runs, where they are known.
    """
    from vicoset.evaluate.tables import AUDITED, KINDS, Options, find
    from vicoset.evaluate.tables.factorial import factorial_effects
    from vicoset.evaluate.tables.pathway import message_pathway
    from vicoset.evaluate.tables.recovery import selector_recovery

    if options.kind not in (*KINDS, *AUDITED):
        raise SettingError(f"table {options.kind!r}; allowed are {', '.join((*KINDS, *AUDITED))}.")
    tasks, audited = listed(options.tasks), options.kind in AUDITED
    model = getattr(options, "model_name", "")
    found = _chosen(find(options.out, tasks, model, folders, audited=audited), options)
    how = Options(
        replicates=options.replicates,
        seed=options.seed,
        unit=options.unit,
        alternative=options.alternative,
        reference=options.reference,
        paper=options.paper,
    )
    at = points(options)
    if options.kind == "factorial":
        return factorial_effects(found, tasks, how, at, factors(options))
    if options.kind == "message-pathway":
        return message_pathway(found, tasks, how, at)
    if options.kind == "selector-recovery":
        return selector_recovery(found, tasks, how, at, *pairs(options))
    if audited:
        there = list(folders) if folders is not None else folders_below(options.out)
        return AUDITED[options.kind](found, there, tasks, how, at)
    return KINDS[options.kind](found, tasks, how)


def _store(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    print(path)
