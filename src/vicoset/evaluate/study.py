"""``study``: run every method that a table compares, with one shared Full, and write the table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from vicoset.errors import RunError, SettingError, VicosetError
from vicoset.evaluate import tabulate
from vicoset.evaluate.commands import (
    FAILED,
    Asking,
    add_model_arguments,
    loaded,
    tell_failures,
)
from vicoset.evaluate.entry import FULL
from vicoset.evaluate.folder import Folder
from vicoset.evaluate.method import Method, methods_of
from vicoset.evaluate.texts import check_plans, listed, seeds_of
from vicoset.plan import Keep, names_in

ALL = "all"
TIMED = ("runtime", "overhead")
KEEPS = {
    **{"fixed-k": "512,256,128,64", "hallucination": "256,128", "llava": "128,64"},
    **dict.fromkeys(TIMED, "256,128"),
}
AUDITED = {"mechanism": "full", "probe": "full", "coverage": "light"}
STUDIES = (
    *("fixed-k", "equal-work", "hallucination", "llava", "factorial", "message-pathway"),
    *("selector-recovery", *AUDITED, *TIMED),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options.

    Args:
        parser: of the command.
    """
    parser.add_argument("kind", choices=STUDIES, metavar="KIND", help=", ".join(STUDIES))
    add_model_arguments(parser, share=None)
    add = parser.add_argument
    add("--methods", default=ALL, help="plans instead of all that are known; commas between them")
    add("--also", default="", help="plans beside those")
    add("--without", default="", help="plans, or selectors, to leave out")
    add("--keeps", help="budgets; of GMC where others get equal work")
    add("--seeds", help="for the plans that draw; 0,1,2 by default, 0 where time is measured")
    add("--images", type=int, help="pictures of every kind, for tinybench")
    add(
        "--null", default="masked", choices=("masked", "blank"), help="of audits: without the image"
    )
    add("--dry-run", action="store_true", help="list the methods and stop")
    tabulate.add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Run the study and write its table.

    Args:
        options: of the command.
    """
    from vicoset.evaluate import identity

    if options.images is not None:
        tiny = [name for name in listed(options.tasks) if name.startswith("tinybench")]
        if not tiny:
            raise SettingError(
                f"--images {options.images} with the tasks {options.tasks}; allowed is tinybench "
                "or one of its parts. Use --limit for others."
            )
        options.choice += [f"{name}=images:{options.images}" for name in tiny]
    _settle_times(options)
    check_plans([text for text in names_in(options.methods) if text != ALL])
    check_plans(names_in(options.also))
    if options.kind in AUDITED and options.batch > 1:
        raise SettingError(
            f"--batch {options.batch} with {options.kind}; allowed is 1: a request of a batch has "
            "no audit of its own."
        )
    asking = Asking(options)
    single = options.kind in (*TIMED, *AUDITED)
    seeds = seeds_of(options.seeds or ("0" if single else "0,1,2"))
    model, processor = loaded(options)
    depth = identity.depth(model)
    plans = plans_of(options, depth)
    plans, refused = possible(model, processor, plans, options)
    for line in refused:
        print(f"left out: {line}", file=sys.stderr)
    methods = methods_for(options, plans, depth, seeds, lambda: tokens_of(model, processor, asking))
    if options.kind in AUDITED:
        from vicoset.evaluate.audited import audited

        methods = audited(methods, AUDITED[options.kind], options.null)
    if options.dry_run:
        print("\n".join(method.label for method in methods))
        return 0
    folders, failed = _work(model, processor, asking, methods)
    tabulate.write(options, folders, refused)
    return FAILED if failed else 0


def _settle_times(options: argparse.Namespace) -> None:
    """Where time is measured, requests are asked one by one and share nothing."""
    if options.kind not in TIMED:
        options.share = options.share is not False
        return
    if options.batch > 1:
        raise SettingError(
            f"--batch {options.batch} with {options.kind}; allowed is 1: a request of a batch has "
            "no time of its own."
        )
    if options.share:
        raise SettingError(
            f"--share with {options.kind}; allowed is --no-share: what is shared takes no time. "
            "Leave it out."
        )
    options.share = False


def _work(
    model: Any, processor: Any, asking: Asking, methods: Sequence[Method]
) -> tuple[list[Folder], int]:
    """Answer what is missing; gives the runs' folders and the number of failures."""
    from vicoset.evaluate.runner import evaluate

    folders, failed = [], 0
    for name in asking.tasks:
        outcome = evaluate(model, processor, methods=methods, **asking.of(name))
        failed += tell_failures(outcome.failures)
        folders += list(outcome.folders)
    return folders, failed


def plans_of(options: argparse.Namespace, depth: int) -> list[str]:
    """The plans that a study runs beside Full.

    Args:
        options: of the command.
        depth: L.
    """
    from vicoset.evaluate.tables.lineup import ALWAYS, GMC, lineup
    from vicoset.evaluate.tables.pathway import ends
    from vicoset.methods import interventions

    points = tabulate.points(options)
    if options.kind in SELVES:
        found = SELVES[options.kind](options, points, depth)
    elif options.kind == "factorial":
        cells = [interventions.factorial(at, tabulate.factors(options)) for at in points]
        found = [*(plan for one in cells for plan in one), *ALWAYS]
    elif options.kind == "message-pathway":
        found = [*(plan for at in points for plan in ends(at)), *ALWAYS]
    elif options.methods == ALL:
        found = [one.plan for one in lineup(depth)]
    else:
        found = [*GMC, *ALWAYS, *names_in(options.methods)]
    out = set(listed(options.without))
    found = [*found, *names_in(options.also)]
    return [p for p in dict.fromkeys(found) if p != FULL and not {p, _head(p)} & out]


def _mechanism(options: argparse.Namespace, points: Sequence[str], depth: int) -> list[str]:
    from vicoset.evaluate.tables.mechanism import plans_at

    return [plan for at in points for plan in plans_at(at, depth)]


def _probe(options: argparse.Namespace, points: Sequence[str], depth: int) -> list[str]:
    from vicoset.evaluate.tables.probe import plans_at

    ranks, seeds = (list(map(int, listed(text))) for text in (options.ranks, options.probe_seeds))
    return [plan for at in points for plan in plans_at(at, ranks, seeds)]


def _coverage(options: argparse.Namespace, points: Sequence[str], depth: int) -> list[str]:
    return list(points)


def _recovery(options: argparse.Namespace, points: Sequence[str], depth: int) -> list[str]:
    from vicoset.evaluate.tables.recovery import plans_at

    pair = tabulate.pairs(options)
    return [plan for at in points for plan in plans_at(at, depth, *pair).values()]


SELVES = {
    "mechanism": _mechanism,
    "probe": _probe,
    "coverage": _coverage,
    "selector-recovery": _recovery,
}
"""Studies whose plans follow from their points alone."""


def _head(plan: str) -> str:
    return plan.partition("@")[0].partition("+")[0].partition("[")[0]


def possible(
    model: Any, processor: Any, plans: Sequence[str], options: argparse.Namespace
) -> tuple[list[str], list[str]]:
    """The plans that this model can run, and for the others why not.

    Args:
        model: loaded.
        processor: of the model.
        plans: names.
        options: of the command.
    """
    from vicoset.api import compress, downsample
    from vicoset.runtime.downsample import NAME

    more = {n: getattr(options, n) for n in ("prefix", "positions", "allow_uncertified")}
    found, refused = [], []
    for plan in plans:
        try:
            if plan == NAME:
                downsample(model, processor, 1.0)
            else:
                compress(model, plan, 1.0, processor=processor, **more)
        except VicosetError as error:
            refused.append(f"{plan}: {error}")
        else:
            found.append(plan)
    if not found:
        raise RunError(f"no plan is left to run: {'; '.join(refused)}")
    return found, refused


def methods_for(
    options: argparse.Namespace,
    plans: Sequence[str],
    depth: int,
    seeds: Sequence[int],
    tokens: Any,
) -> list[Method]:
    """Full and every plan with its budgets and seeds.

    Args:
        options: of the command.
        plans: names.
        depth: L.
        seeds: for the plans that draw.
        tokens: gives N, asked for only where budgets depend on it.
    """
    from vicoset.evaluate.tables.equal import pairs, targets
    from vicoset.evaluate.tables.lineup import GMC

    keeps = listed(options.keeps or KEEPS.get(options.kind, "128"))
    if options.kind != "equal-work":
        budgets = [Keep.read(text) for text in keeps]
        return methods_of([FULL, *plans], budgets, depth, seeds)
    found = methods_of([FULL, *GMC], [int(k) for k in keeps], depth, seeds)
    goals = targets(GMC, [int(k) for k in keeps], tokens(), depth)
    others = [plan for plan in plans if plan not in GMC]
    for keys in pairs(goals, others, tokens(), depth).values():
        for key in keys:
            found += methods_of([key.plan], [int(key.keep)], depth, seeds)
    return list(dict.fromkeys(found))


def tokens_of(model: Any, processor: Any, asking: Asking) -> int:
    """N of the first question.

    Args:
        model: loaded.
        processor: of the model.
        asking: the tasks.
    """
    from vicoset.evaluate.answering import Model
    from vicoset.evaluate.blocks import Block

    given = asking.of(asking.tasks[0])
    item = given["items"][0]
    asked = Model(model, processor, square=given["square"])
    inputs, _ = asked.prepare(Block(0, (item,)))
    row = asked.generate(Method(), inputs, 1)[0]
    return row.record.tokens
