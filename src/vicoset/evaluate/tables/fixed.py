"""Quality at fixed final budgets: every method with the same K; the LLaVA table is one of these."""

from __future__ import annotations

from collections.abc import Sequence

from vicoset.errors import RunError
from vicoset.evaluate.statistics import Estimate
from vicoset.evaluate.tables import printed
from vicoset.evaluate.tables.comparison import LEVEL, Comparison, Options, cell
from vicoset.evaluate.tables.lineup import ALWAYS, GMC, lineup, noted
from vicoset.evaluate.tables.records import FULL_KEY, Found, Key
from vicoset.evaluate.tables.rows import COST, COSTS, METHOD, QUERY_AWARE, command, costs, described
from vicoset.evaluate.tables.table import Cell, Column, Row, Table, Value

DIFFERENCE = (
    Column("delta", "Δ to {}", signed=True),
    Column("p", "p (Holm)", 4),
)
PAPER = "paper_"
OWN = "own"  # plans whose stages all have budgets of their own


def fixed_k(
    found: Found, tasks: Sequence[str] = (), options: Options | None = None, name: str = "fixed-k"
) -> list[Table]:
    """Rows by budget, then the family of macros against Full.

    Args:
        found: the records.
        tasks: by name; all of Full's when empty.
        options: how to compare.
        name: of the table.
    """
    options = options or Options()
    keys = [key for key in found.runs if key != FULL_KEY]
    _check_reference(options.reference, keys, found)
    both = Comparison.of(found, keys, tasks, options)
    counts = sorted({int(key.keep) for key in keys if key.keep.isdecimal()}, reverse=True)
    others = sorted({key.keep for key in keys if not key.keep.isdecimal()}, reverse=True)
    budgets = [*map(str, counts), *others]
    shown = {k: _keys(found, keys, k) for k in budgets}
    retention = both.retains
    macros = both.macro(retention=retention)
    pairs = {
        key: (key, Key(options.reference, key.keep))
        for k in shown
        for key in shown[k]
        if key.plan != options.reference and both.has(key) and both.has(Key(options.reference, k))
    }
    against = both.differences(macros, pairs)
    estimates = macros.estimates(LEVEL)
    columns = _Columns(both, options)
    rows = []
    for k, mine in shown.items():
        full = {"keep": k or OWN, **columns.row(FULL_KEY, estimates)}
        rows.append(Row(full, k or OWN, reference=True))
        rows += [columns.full_row(key, estimates, against) for key in mine]
    what = "retention of Full" if retention else "percent of the attainable"
    notes = [
        both.note(),
        f"Macro: equal-task mean, {what}"
        + ("." if retention else "; Full is 0 in some replicates."),
        f"Δ: macro minus that of {options.reference} at the same K, in points. "
        + both.family(len(against), "differences of this table"),
        COSTS,
        QUERY_AWARE,
        *columns.notes,
        *noted([key.plan for key in keys], found.depth),
        *found.notes,
    ]
    title = f"Fixed final budgets, {found.model}"
    made = [Table(name, title, columns.all(options.reference), rows, notes)]
    family = _family(both, budgets)
    return [*made, family] if family is not None else made


def _check_reference(reference: str, keys: Sequence[Key], found: Found) -> None:
    """Refuse a plan to compare with that was not run; the usual one may be missing."""
    plans = sorted({key.plan for key in keys})
    if reference not in plans and reference != Options.reference:
        raise RunError(
            f"{found.out} holds no run of the reference {reference!r}; allowed are "
            f"{', '.join(plans)}. Run it, or name another --reference."
        )


def _keys(found: Found, keys: Sequence[Key], keep: str) -> list[Key]:
    """The rows of a budget in the order of the lineup; rows that have to be there come along."""
    order = [one.plan for one in lineup(found.depth)]
    place = {plan: number for number, plan in enumerate(order)}
    mine = [key for key in keys if key.keep == keep]
    wanted = [Key(p, keep) for p in (*GMC, *ALWAYS)] if keep.isdecimal() else []
    mine += [key for key in wanted if key not in mine]
    return sorted(mine, key=lambda key: (place.get(key.plan, len(place)), key.plan))


class _Columns:
    """Scores, macro and differences of a row, and the paper's numbers beside them."""

    def __init__(self, both: Comparison, options: Options) -> None:
        self.both, self.options = both, options
        single = len(both.tasks) == 1
        numbers = [(task, "") for task in both.tasks]
        if single:
            task = both.tasks[0]
            numbers += [(task, name) for name in both.study.tasks[task].metrics]
        self.scores = {f"{t}:{m}" if m else t: both.score(t, m) for t, m in numbers}
        self.single = single
        self.paper = printed.setting(both.found, options.paper)
        self.macro_of = printed.macro_table(self.paper, both.tasks) if self.paper else None

    @property
    def notes(self) -> list[str]:
        """Where the printed numbers are from."""
        if self.paper is None:
            return []
        return [f"(paper): as printed for {self.paper}; vicoset.evaluate.paper names the tables."]

    def all(self, reference: str) -> list[Column]:
        """The columns of the table."""
        found = [Column("keep", "K"), *METHOD, *COST]
        for name in self.scores:
            found.append(Column(name, name.rpartition(":")[2], 2))
            if self._prints(name):
                found.append(Column(PAPER + name, f"{name} (paper)", 2))
        found.append(Column("macro", "Macro", 2))
        if self.macro_of is not None:
            found.append(Column(PAPER + "macro", "Macro (paper)", 2))
        shown = [Column(c.key, c.title.format(reference), c.digits, c.signed) for c in DIFFERENCE]
        return [*found, *shown]

    def _prints(self, name: str) -> bool:
        return self.paper is not None and any(
            printed.number(table, name, self.paper, FULL_KEY) is not None for table in self._tables
        )

    @property
    def _tables(self) -> tuple[str, ...]:
        return ("fixed_k",) if self.paper == "Qwen2.5-VL-7B" else ("llava",)

    def row(self, key: Key, estimates: dict[str, Estimate]) -> dict[str, Value]:
        """What a row says, without the difference."""
        both = self.both
        values: dict[str, Value] = {
            **described(both.found, key),
            **costs(both.found, key, both.tasks),
        }
        for name, draws in self.scores.items():
            values[name] = draws.of(key.label)
            if self.paper is not None:
                values[PAPER + name] = printed.number(self._tables[0], name, self.paper, key)
        values["macro"] = cell(estimates[key.label])
        if key == FULL_KEY:
            values["macro"] = Cell(estimates[key.label].value)
        if self.macro_of is not None and self.paper is not None:
            values[PAPER + "macro"] = printed.number(*self.macro_of, self.paper, key)
        return values

    def full_row(
        self,
        key: Key,
        estimates: dict[str, Estimate],
        against: dict[Key, tuple[Estimate, float]],
    ) -> Row:
        """A row with its difference, or one that says that it is missing."""
        found, both = self.both.found, self.both
        if not both.has(key):
            missing = command(found, key, both.tasks)
            return Row({"keep": key.keep or OWN, **described(found, key)}, key.keep or OWN, missing)
        values = {"keep": key.keep or OWN, **self.row(key, estimates)}
        if key in against:
            one, p = against[key]
            values |= {"delta": cell(one), "p": p}
        return Row(values, key.keep or OWN, reference=key.plan == self.options.reference)


def _family(both: Comparison, budgets: Sequence[str]) -> Table | None:
    """GMC-L16's macros against Full, one family over the budgets, as the paper tests them."""
    pairs = {k: (Key(GMC[1], k), FULL_KEY) for k in budgets if both.has(Key(GMC[1], k))}
    if not pairs or not both.retains:
        return None
    found = both.differences(both.macro(retention=True), pairs)
    columns = [
        Column("keep", "K"),
        Column("delta", "GMC-L16 minus Full", signed=True),
        Column("p", "p (Holm)", 4),
    ]
    rows = [Row({"keep": k, "delta": cell(one), "p": p}) for k, (one, p) in found.items()]
    note = both.family(len(rows), "budgets")
    return Table("general-family", "Macro retention of GMC-L16 against Full", columns, rows, [note])
