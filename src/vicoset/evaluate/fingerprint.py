"""Content, not names: digests of files, weights, processors, items and of the code that runs."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vicoset.errors import SettingError, UnreadableError
from vicoset.evaluate.lock import Lock
from vicoset.evaluate.task import Item

WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
# Says where something lies, who wrote it, or what the identity names elsewhere.
_PLACES = {"_name_or_path", "name_or_path", "transformers_version", "_commit_hash", "cache_dir"}
_NUMERICS = {"dtype", "torch_dtype", "_attn_implementation", "attn_implementation"}
_IGNORED = {*_PLACES, *_NUMERICS, "_attn_implementation_autoset", "_attn_implementation_internal"}
_SKIPPED_ROOMS = {"vicoset", "vicoset.methods"}  # lists of names, which load what is not used


def digest_of(content: Any) -> str:
    """16 hex digits of JSON values; the order of an object's keys does not count.

    Args:
        content: JSON values; anything else is refused by name.
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=_refuse)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Files:
    """Digests of files, remembered by path, size and time of change.

    Attributes:
        memory: the file that remembers, a line per file; beside it lies a lock, so that the shards
            of a run read large checkpoints once.
    """

    def __init__(self, memory: Path) -> None:
        self.memory = memory
        memory.parent.mkdir(parents=True, exist_ok=True)

    def digest(self, path: str | os.PathLike[str]) -> str:
        """Of a file's bytes.

        Args:
            path: of the file.
        """
        file = Path(path).resolve()
        try:
            found = file.stat()
        except OSError as error:
            raise UnreadableError(
                f"{file} cannot be read ({error}); allowed are readable files. Check the path."
            ) from error
        key = f"{file}\t{found.st_size}\t{found.st_mtime_ns}"
        known = self._known()
        if key not in known:
            with Lock(self.memory.with_suffix(".lock")):
                known = self._known()
                if key not in known:
                    known[key] = _read(file)
                    with open(self.memory, "a", encoding="utf-8") as memory:
                        memory.write(json.dumps([key, known[key]]) + "\n")
        return known[key]

    def _known(self) -> dict[str, str]:
        known: dict[str, str] = {}
        if self.memory.is_file():
            for line in self.memory.read_text(encoding="utf-8").splitlines():
                try:
                    key, digest = json.loads(line)
                except ValueError:
                    continue  # a line that a killed process left; the file is read again
                known[key] = digest
        return known


def of_weights(model: Any, directory: str | os.PathLike[str] | None, files: Files) -> str:
    """Of the weights: of the checkpoint's files, or of the tensors where there is no directory.

    Args:
        model: as it will run.
        directory: that it was loaded from, unchanged since; None for a model made in memory.
        files: remembers.
    """
    if directory is not None:
        found = sorted({path for kind in WEIGHTS for path in Path(directory).glob(kind)})
        if not found:
            raise UnreadableError(
                f"{directory} holds no weights; allowed are {', '.join(WEIGHTS)}. Name the "
                "directory that the model was loaded from, or none, to read them from memory."
            )
        return digest_of([[path.name, files.digest(path)] for path in found])
    import torch

    made = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if tensor.device.type == "meta":
            raise UnreadableError(
                f"the weight {name} is not in memory but on the meta device; pass directory=, the "
                "place that the model was loaded from, to read its files instead."
            )
        made.update(f"{name} {list(tensor.shape)} {tensor.dtype} ".encode())
        made.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return made.hexdigest()[:16]


def of_config(config: Any) -> str:
    """Of a configuration, without places and versions.

    Args:
        config: of a model or of its generation.
    """
    return digest_of(_cleaned(json.loads(json.dumps(config.to_dict(), default=str))))


def of_processor(processor: Any) -> str:
    """Of everything that turns images and text into numbers.

    Args:
        processor: of the model.
    """
    parts: dict[str, Any] = {
        name: value
        for name, value in vars(processor).items()
        if isinstance(value, (str, int, float, bool)) and name not in _IGNORED
    }
    for name in ("image_processor", "video_processor", "feature_extractor"):
        part = getattr(processor, name, None)
        if part is not None:
            parts[name] = [type(part).__name__, json.loads(json.dumps(part.to_dict(), default=str))]
    words = getattr(processor, "tokenizer", None)
    if words is not None:
        parts["tokenizer"] = _of_tokenizer(words)
    return digest_of(_cleaned(parts))


def of_items(items: Sequence[Item]) -> str:
    """Of all that is asked and of the answers that count, in order; not of the pictures.

    Args:
        items: of the whole task.
    """
    made = hashlib.sha256()
    for item in items:
        content = [item.sample_id, item.unit_id, item.stratum, item.prompt, item.references]
        content += [item.limit, dict(item.groups), len(item.pictures)]
        made.update(digest_of(content).encode())
    return made.hexdigest()[:16]


def of_pictures(items: Sequence[Item], files: Files) -> str:
    """Of the files that hold a task's pictures, in order of their first use.

    Args:
        items: of the whole task.
        files: remembers.
    """
    sources = dict.fromkeys(p.source for item in items for p in item.pictures if p.source)
    return digest_of([files.digest(source) for source in sources])


def of_code(roots: Iterable[str]) -> str:
    """Of the source of some modules and of those of this package that they import, in turn.

    A development version keeps its number while its code changes; runs must not be mixed.

    Args:
        roots: dotted names.
    """
    waiting, sources = list(roots), dict[str, str]()
    while waiting:
        name = waiting.pop()
        spec = None if name in sources or name in _SKIPPED_ROOMS else _spec(name)
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            continue
        text = Path(spec.origin).read_text(encoding="utf-8")
        sources[name] = hashlib.sha256(text.encode()).hexdigest()
        waiting += _imported(text)
    return digest_of(sources)


def _read(file: Path) -> str:
    made = hashlib.sha256()
    with open(file, "rb") as content:
        while piece := content.read(1 << 22):
            made.update(piece)
    return made.hexdigest()[:32]


@functools.cache  # methods of a study share most of their modules
def _imported(text: str) -> tuple[str, ...]:
    """Modules of this package that a source names; a name may also be something in a module."""
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(name for name in names if name.startswith("vicoset."))


def _spec(name: str) -> Any:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def _of_tokenizer(words: Any) -> dict[str, Any]:
    backend = getattr(words, "backend_tokenizer", None)
    vocabulary = json.loads(backend.to_str()) if backend is not None else words.get_vocab()
    for switch in ("padding", "truncation"):  # set by the latest call, no part of the tokenizer
        vocabulary.pop(switch, None)
    return {
        "vocabulary": vocabulary,
        "template": getattr(words, "chat_template", None),
        "side": getattr(words, "padding_side", None),
        "special": {k: str(v) for k, v in getattr(words, "special_tokens_map", {}).items()},
    }


def _cleaned(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _cleaned(v) for k, v in value.items() if k not in _IGNORED}
    return [_cleaned(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def _refuse(value: Any) -> Any:
    raise SettingError(
        f"{value!r}, a {type(value).__name__}, has no place in an identity; allowed are JSON "
        "values: texts, numbers, true, false, null, lists and objects of them. Convert it first."
    )
