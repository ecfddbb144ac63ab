"""Task files of lmms-eval for data on the local disk, without a hub and without a judge.

Each file includes the task that lmms-eval ships and changes what stands in the way of a local,
offline run that can be compared with ours: where the data lie, the limit of the paper's table, no
second dataset to download, no judge behind a network.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vicoset.errors import SettingError, UnsupportedError
from vicoset.evaluate.tasks import task as task_named
from vicoset.evaluate.tasks.rows import files_of, read_json

SUFFIX = "_local"
_RELEASES = "0.7."
_OURS = "vicoset.evaluate.lmms"


@dataclass(frozen=True)
class Shipped:
    """A task that lmms-eval ships.

    Attributes:
        file: of the task, below lmms-eval's folder of tasks.
        split: how the data's files start.
        config: a folder that they lie in, where a directory holds several configurations.
        metrics: instead of the shipped ones: name and function, or a built-in aggregation.
        more: further lines.
    """

    file: str
    split: str
    config: str = ""
    metrics: Mapping[str, str] | None = None
    more: tuple[str, ...] = ()


_HALLUSION = "lmms_eval.tasks.hallusion_bench.evaluate_hb.hb_aggregation_result_{}_intern"
_STATIC = "lmms_eval.tasks.mmbench.en_utils.mmbench_aggregate_dev_results_static"
# Left out are metrics that write submission files; HallusionBench's own ones ask a judge.
SHIPPED: dict[str, Shipped] = {
    "textvqa": Shipped("textvqa/textvqa_val.yaml", "validation", metrics={"exact_match": "mean"}),
    "chartqa": Shipped("chartqa/chartqa.yaml", "test"),
    "docvqa": Shipped("docvqa/docvqa_val.yaml", "validation", "DocVQA"),
    "gqa": Shipped("gqa/gqa.yaml", "testdev", "testdev_balanced_instructions"),
    "mmbench": Shipped(
        "mmbench/mmbench_en_dev_static.yaml", "dev", "en", {"gpt_eval_score": _STATIC}
    ),
    "mme": Shipped("mme/mme.yaml", "test"),
    "pope": Shipped("pope/pope.yaml", "test"),
    "hallusionbench": Shipped(
        "hallusion_bench/hallusion_bench_image.yaml",
        "image",
        metrics={name: _HALLUSION.format(name) for name in ("aAcc", "qAcc", "fAcc")},
        more=(
            "lmms_eval_specific_kwargs:",
            '  default: {pre_prompt: "", post_prompt: "\\nPlease answer yes or no."}',
        ),
    ),
}


def prepare(
    names: Sequence[str],
    data: Mapping[str, str],
    choices: Mapping[str, Mapping[str, Any]],
    out: str | os.PathLike[str],
) -> list[Path]:
    """Write a task file for each task; ``--include_path OUT --tasks NAME_local`` runs it.

    Args:
        names: of our tasks.
        data: task to the path of its data.
        choices: task to its choices, for tasks that lmms-eval lacks and ours score.
        out: directory of the files.
    """
    home = Path(out).resolve()
    home.mkdir(parents=True, exist_ok=True)
    return [_prepared(name, data.get(name), choices.get(name, {}), home) for name in names]


def lmms_tasks() -> Path:
    """lmms-eval's folder of tasks; the package is looked up, not imported."""
    try:
        found = version("lmms-eval")
    except PackageNotFoundError:
        raise UnsupportedError(
            "lmms-eval is not installed here, and a prepared task includes the one it ships; "
            "docs/evaluation.md says how to install it without a CUDA build of torchvision."
        ) from None
    if not found.startswith(_RELEASES):
        raise UnsupportedError(
            f"lmms-eval {found}; the prepared tasks are written and tested for {_RELEASES}x. "
            "Install lmms-eval>=0.7,<0.8."
        )
    spec = importlib.util.find_spec("lmms_eval")
    if spec is None or not spec.submodule_search_locations:
        raise UnsupportedError("lmms-eval has no folder of tasks. Install it again.")
    return Path(next(iter(spec.submodule_search_locations))) / "tasks"


def _prepared(name: str, data: str | None, choices: Mapping[str, Any], home: Path) -> Path:
    shipped = SHIPPED.get(name)
    if shipped is None:
        lines = _guest(name, data, choices, home)
    elif choices:
        raise SettingError(
            f"{name} got the choices {dict(choices)}; lmms-eval's own {shipped.file} knows none. "
            "Leave them out, and pass them to import-lmms, which scores by them."
        )
    else:
        lines = [f"include: {_quoted(str(lmms_tasks() / shipped.file))}"]
        lines += _table(name, shipped, data, home)
        lines += _changed(shipped)
        lines += _generation(task_named(name).limit)
    path = home / f"{name}{SUFFIX}.yaml"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def _table(name: str, shipped: Shipped, data: str | None, home: Path) -> list[str]:
    """Where the rows come from; paths are absolute, since globs are not resolved."""
    files = [file.resolve() for file in files_of(data, shipped.split, shipped.config)]
    kind = "parquet" if files[0].suffix == ".parquet" else "json"
    if kind == "json":
        files = [_with_absolute_paths(name, files, home)]
    listed = ", ".join(_quoted(str(file)) for file in files)
    lines = [
        f"task: {name}{SUFFIX}",
        f"dataset_path: {kind}",
        "dataset_name: null",
        f"dataset_kwargs: {{data_files: {{{shipped.split}: [{listed}]}}}}",
    ]
    if name == "gqa" and data is not None and _album(data):
        module = home / "gqa_album.py"
        code = (
            f"from {_OURS}.local import Album\n\nvisual = Album({os.path.abspath(data)!r}).visual\n"
        )
        module.write_text('"""The pictures of the task beside this file."""\n\n' + code)
        return [*lines, "process_docs: null", "doc_to_visual: !function gqa_album.visual"]
    return [*lines, f"process_docs: !function {_OURS}.local.pictures"]


def _album(data: str) -> bool:
    return (Path(data) / "testdev_balanced_images").is_dir()


def _with_absolute_paths(name: str, files: Sequence[Path], home: Path) -> Path:
    """A copy of JSON tables in which pictures are named by absolute paths."""
    path = home / f"{name}.jsonl"
    with open(path, "w", encoding="utf-8") as out:
        for file in files:
            for row in read_json(file):
                image = str((file.parent / str(row["image"])).resolve())
                out.write(json.dumps({**row, "image": image}, ensure_ascii=False) + "\n")
    return path


def _changed(shipped: Shipped) -> list[str]:
    lines = list(shipped.more)
    if shipped.metrics:
        lines += ["metric_list:"]
    for metric, how in (shipped.metrics or {}).items():
        how = f"!function {how}" if "." in how else how
        lines += [f"  - metric: {metric}", f"    aggregation: {how}", "    higher_is_better: true"]
    return lines


def _generation(limit: int) -> list[str]:
    return [f"generation_kwargs: {{max_new_tokens: {limit}, do_sample: false, until: []}}"]


def _guest(name: str, data: str | None, choices: Mapping[str, Any], home: Path) -> list[str]:
    """A task that lmms-eval lacks: our questions, our scorer."""
    from vicoset.evaluate.lmms import guest

    task = task_named(name)
    table = home / f"{name}.jsonl"
    found = guest.rows(name, None if data is None else os.path.abspath(data), choices)
    table.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    better = str(task.higher_is_better).lower()
    return [
        f"task: {name}{SUFFIX}",
        "dataset_path: json",
        f"dataset_kwargs: {{data_files: {{test: [{_quoted(str(table))}]}}}}",
        "test_split: test",
        "output_type: generate_until",
        *(f"doc_to_{part}: !function {_OURS}.guest.{part}" for part in ("visual", "text")),
        f"doc_to_target: !function {_OURS}.guest.target",
        f"process_results: !function {_OURS}.guest.process",
        *_generation(task.limit),
        "metric_list:",
        *("  - metric: value", f"    aggregation: !function {_OURS}.guest.aggregate"),
        f"    higher_is_better: {better}",
        *("  - metric: score", "    aggregation: mean", f"    higher_is_better: {better}"),
    ]


def _quoted(text: str) -> str:
    """A text in YAML, of which JSON is a part."""
    return json.dumps(text, ensure_ascii=False)
