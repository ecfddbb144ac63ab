"""What README.md and docs/ say is true: their Python runs, their targets and links exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from vicoset.methods import registry
from vicoset.methods.presets import PRESETS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

_FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```[ \t]*$", re.M | re.S)
_NO_RUN = "<!-- no-run -->"


def python_blocks(text: str) -> list[str]:
    """The ```python blocks to run, each after as many newlines as precede it on its page."""
    blocks = []
    for fence in _FENCE.finditer(text):
        marked = text[: fence.start()].rstrip().endswith(_NO_RUN)
        if fence["language"] == "python" and not marked:
            blocks.append("\n" * text[: fence.start("body")].count("\n") + fence["body"])
    return blocks


def make_targets(text: str) -> set[str]:
    """Targets of `make` commands in code spans and in fenced blocks; prose is left alone."""
    fenced = [fence["body"] for fence in _FENCE.finditer(text)]
    spans = re.findall(r"`([^`\n]+)`", _FENCE.sub("", text))
    return {
        target
        for code in (*fenced, *spans)
        for target in re.findall(r"(?:^|[\s;&|])make[ \t]+([a-z][a-z-]*)", code)
    }


def heading_anchors(text: str) -> set[str]:
    """The anchors that a page's headings get: lower case, no punctuation, dashes for spaces."""
    headings = re.findall(r"^#+[ \t]+(.+?)[ \t]*$", _FENCE.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(text: str, page: Path) -> list[str]:
    """Relative links of `page` whose file or heading does not exist."""
    broken = []
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)", _FENCE.sub("", text)):
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        if not path.exists():
            broken.append(target)
        elif anchor and path.suffix == ".md":
            other = text if path == page else path.read_text(encoding="utf-8")
            broken += [target] if anchor not in heading_anchors(other) else []
    return broken


@pytest.fixture
def registered() -> Iterator[None]:
    """What a page registers is gone with it."""
    tables = (vars(registry)["_SELECTORS"], vars(registry)["_REALISERS"], PRESETS)
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


@every_page
@pytest.mark.usefixtures("registered")
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__docs__"}
    for block in python_blocks(page.read_text(encoding="utf-8")):
        exec(compile(block, page, "exec"), namespace)


@every_page
def test_named_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.M))
    assert make_targets(page.read_text(encoding="utf-8")) - targets == set()


@every_page
def test_relative_links_resolve(page: Path) -> None:
    assert broken_links(page.read_text(encoding="utf-8"), page) == []


EXAMPLE = """\
# A page: of sorts

Run `make test`, or make sure that nothing else does. See [there](other.md),
[the top](#a-page-of-sorts), [a heading](#missing) and [a site](https://example.org/x).

```python
first = 1
```

<!-- no-run -->
```python
raise SystemExit
```

```bash
make venv && make lint PYTHON=python3.12
```

```python
second = first + 1
```
"""


def test_blocks_share_a_namespace_and_keep_their_lines() -> None:
    blocks = python_blocks(EXAMPLE)
    assert [block.strip() for block in blocks] == ["first = 1", "second = first + 1"]
    for block in blocks:
        line = block.count("\n")
        assert EXAMPLE.splitlines()[line - 1] == block.strip()


def test_a_failing_block_is_seen() -> None:
    with pytest.raises(NameError, match="undefined"):
        exec(python_blocks("```python\nundefined\n```\n")[0], {})


def test_targets_are_read_from_code_alone() -> None:
    assert make_targets(EXAMPLE) == {"test", "venv", "lint"}


def test_broken_links_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(EXAMPLE, encoding="utf-8")
    assert broken_links(EXAMPLE, page) == ["other.md", "#missing"]
    (tmp_path / "other.md").write_text("# Other\n", encoding="utf-8")
    assert broken_links(EXAMPLE, page) == ["#missing"]
    assert broken_links("[x](other.md#nowhere)", page) == ["other.md#nowhere"]
    assert broken_links("[x](other.md#other)", page) == []
