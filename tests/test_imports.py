"""Imports go one way, and importing the package is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "vicoset"

# Room -> the other rooms it may import. A room is a folder or a module directly in the package;
# "__init__" is the package itself, and "__version__" the one name of it that rooms may use.
_BELOW_METHODS = {"errors", "core"}
_BELOW_RUNTIME = {*_BELOW_METHODS, "methods", "plan"}
_BELOW_API = {*_BELOW_RUNTIME, "runtime", "__version__"}
_BELOW_CLI = {*_BELOW_API, "api"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "core": {"errors"},
    "methods": _BELOW_METHODS,
    "plan": {*_BELOW_METHODS, "methods"},
    "models": _BELOW_METHODS,
    "runtime": {*_BELOW_RUNTIME, "models", "__version__"},
    "api": _BELOW_API,
    "tiny": {"errors", "runtime"},
    "audit": _BELOW_CLI,
    "view": _BELOW_CLI,
    "evaluate": {*_BELOW_CLI, "tiny", "audit"},
    "bench": {*_BELOW_CLI, "tiny"},
    "ask": {*_BELOW_CLI, "tiny", "view", "evaluate"},
    "cli": {*_BELOW_CLI, "tiny", "audit", "view", "evaluate", "bench", "ask"},
    "__main__": {"cli"},
    "__init__": {"errors", "plan", "api"},
}

# What a room may use from outside. The mathematics takes tensors and returns tensors: it has the
# standard library without its doors to files, processes, the network and the import system.
_OUTWARD = {
    *("csv", "fileinput", "glob", "http", "importlib", "io", "json", "logging", "mmap", "os"),
    *("pathlib", "pickle", "shelve", "shutil", "socket", "sqlite3", "ssl", "subprocess"),
    *("tempfile", "urllib"),
}
OUTSIDE_ALLOWED: dict[str, set[str]] = {
    "errors": set(sys.stdlib_module_names),
    "core": {*sys.stdlib_module_names, "torch"} - _OUTWARD,
}
# One file may use more than its room: the compiled loops, where numba is installed.
FILE_ALLOWED: dict[str, set[str]] = {"core/kernels.py": {"numba", "numpy"}}
NO_TRANSFORMERS = {"methods", "plan", "audit", "view", "__init__"}


def imported_modules(source: str, package: str) -> list[tuple[int, str]]:
    """Line and absolute dotted name of everything that `source`, a module of `package`, imports.

    Imports inside functions and under `TYPE_CHECKING` count: the direction is about what a room
    knows. `from a import b` is named `a.b`, since b may be a module.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                above = parents[: len(parents) - (node.level - 1)]
                base = ".".join([*above, base] if base else above)
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def violations(
    source: str, room: str, package: str = "vicoset", extra: frozenset[str] = frozenset()
) -> list[str]:
    """What `source`, a module of `room` inside `package`, imports against the rules above."""
    wrong = []
    for line, module in imported_modules(source, package):
        top, _, rest = module.partition(".")
        if top == "vicoset":
            target = rest.split(".")[0]
            target = target if target in {*MAY_IMPORT, "__version__"} else "__init__"
            if target != room and target not in MAY_IMPORT[room]:
                allowed = ", ".join(sorted(MAY_IMPORT[room])) or "nothing of vicoset"
                wrong.append(f"line {line}: {room} imports {module}; allowed: {allowed}")
        elif room in OUTSIDE_ALLOWED and top not in OUTSIDE_ALLOWED[room] | extra:
            wrong.append(f"line {line}: {room} imports {module}, which is outside its means")
        elif room in NO_TRANSFORMERS and top == "transformers":
            wrong.append(f"line {line}: {room} imports {module}; it works without a model library")
    return wrong


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    package = ".".join(("vicoset", *path.relative_to(PACKAGE).parent.parts))
    extra = frozenset(FILE_ALLOWED.get(path.relative_to(PACKAGE).as_posix(), ()))
    assert violations(path.read_text(encoding="utf-8"), room_of(path), package, extra) == []


def test_every_room_has_a_rule() -> None:
    assert {room_of(path) for path in modules()} - MAY_IMPORT.keys() == set()


def test_rules_have_no_cycle() -> None:
    remaining = {room: targets - {"__version__"} for room, targets in MAY_IMPORT.items()}
    while remaining:
        free = {room for room, targets in remaining.items() if not targets & remaining.keys()}
        assert free, f"these rooms wait for each other: {sorted(remaining)}"
        remaining = {room: t for room, t in remaining.items() if room not in free}


def test_only_the_runtime_knows_the_models() -> None:
    assert [room for room, targets in MAY_IMPORT.items() if "models" in targets] == ["runtime"]


@pytest.mark.parametrize(
    ("room", "package", "source"),
    [
        ("core", "vicoset.core", "import torch\nfrom math import sqrt\nimport dataclasses"),
        ("core", "vicoset.core", "from vicoset.core.heads import x\nfrom .banks import y"),
        ("core", "vicoset.core", "from vicoset.errors import VicosetError\nfrom .. import errors"),
        ("methods", "vicoset.methods", "from vicoset import core\nimport scipy.stats"),
        ("runtime", "vicoset.runtime", "from vicoset.models import base\nimport transformers"),
        ("evaluate", "vicoset.evaluate", "from vicoset import __version__"),
        ("api", "vicoset", "from .runtime import compaction\nfrom .plan import Plan"),
        ("cli", "vicoset.cli", "from ..view import overlay\nfrom vicoset import ask"),
    ],
)
def test_checker_accepts(room: str, package: str, source: str) -> None:
    assert violations(source, room, package) == []


@pytest.mark.parametrize(
    ("room", "package", "source"),
    [
        ("errors", "vicoset", "from vicoset.core import heads"),
        ("errors", "vicoset", "import torch"),
        ("core", "vicoset.core", "from vicoset.methods import gmc"),
        ("core", "vicoset.core", "from ..methods import gmc"),
        ("core", "vicoset.core", "from .. import methods"),
        ("core", "vicoset.core.deeper", "from ...plan import Plan"),
        ("core", "vicoset.core", "import vicoset"),
        ("core", "vicoset.core", "from vicoset import __version__"),
        ("core", "vicoset.core", "from vicoset import *"),
        ("core", "vicoset.core", "def late():\n    import vicoset.runtime.cache as cache"),
        ("core", "vicoset.core", "if TYPE_CHECKING:\n    from vicoset.api import compress"),
        *[
            ("core", "vicoset.core", f"import {module}")
            for module in ("numpy", "transformers", "os", "os.path", "pathlib", "io", "json")
        ],
        ("core", "vicoset.core", "from logging import getLogger"),
        ("methods", "vicoset.methods", "from vicoset.plan import Keep"),
        ("methods", "vicoset.methods", "from transformers import AutoModel"),
        ("models", "vicoset.models", "from vicoset.runtime import capture"),
        ("plan", "vicoset", "from .runtime import compaction"),
        ("runtime", "vicoset.runtime", "from vicoset.api import compress"),
        ("api", "vicoset", "from vicoset.models import base"),
        ("audit", "vicoset.audit", "from vicoset.models import base"),
        ("view", "vicoset.view", "from vicoset.evaluate import records"),
        ("bench", "vicoset.bench", "from vicoset.cli import main"),
        ("tiny", "vicoset.tiny", "from vicoset.api import compress"),
        ("evaluate", "vicoset.evaluate", "from vicoset import compress"),
    ],
)
def test_checker_refuses(room: str, package: str, source: str) -> None:
    assert len(violations(source, room, package)) == 1


def test_importing_the_package_loads_no_model_code() -> None:
    code = (
        "import sys, vicoset; assert vicoset.__version__; "
        "print(*{'torch', 'transformers', 'numpy'} & sys.modules.keys())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "", "")
