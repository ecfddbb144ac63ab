"""Indices, images, places and positions: where the kept tokens lie, and where they may."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from vicoset.audit.verify.problem import Findings, shown
from vicoset.runtime.downsample import NAME as RESIZED

LONGEST = 1 << 24  # positions of a prompt


def check_places(body: Mapping[str, Any], found: Findings) -> None:
    """Every index, image, place and position of every stage.

    Args:
        body: of a record of the right form.
        found: is added to.
    """
    if not _images(body, found):
        return
    owners = [n for n, image in enumerate(body["images"]) for _ in range(image["tokens"])]
    spots = [
        p for image in body["images"] for first, n in image["runs"] for p in range(first, first + n)
    ]
    resized = any(stage["selector"] == RESIZED for stage in body["stages"])
    if len(spots) != body["tokens"] and not resized:
        return  # the tokens do not add up, which is a problem already
    before: Sequence[int] | None = None
    told: dict[int, list[Any]] = {}
    for place, stage in enumerate(body["stages"]):
        where = f"stages[{place}]"
        if stage["selector"] == RESIZED:
            found.same(f"{where}.indices", stage["indices"], [])
            continue
        if not _indices(where, stage, body["tokens"], before, found):
            continue
        before = stage["indices"]
        for name, source in (("image_ids", owners), ("places", spots)):
            if name not in stage:
                found.add(f"{where}.{name}", "missing")
                continue
            _each(f"{where}.{name}", stage[name], [source[i] for i in before], found)
        missing = set(range(len(body["images"]))) - {owners[i] for i in before}
        if missing:
            found.add(f"{where}.indices", f"no carrier in the images {sorted(missing)}")
        if "positions" not in stage:
            found.add(f"{where}.positions", "missing")
        elif _shape(f"{where}.positions", stage["positions"], len(before), found):
            _earlier(where, stage, told, found)
            _positions(f"{where}.positions", stage["positions"], before, body, found)
        _carriers(where, stage, [] if place else owners, body["stages"][:place], found)
    if body["positions"] not in ("original", "packed"):
        found.add("positions", f"{shown(body['positions'])}; allowed are original and packed")


def _images(body: Mapping[str, Any], found: Findings) -> bool:
    """Whether the images' tokens, grids and runs belong together."""
    count, end = len(found), 0
    if body["length"] > LONGEST:
        found.add("length", f"{body['length']}; allowed are at most {LONGEST} positions")
        return False
    for number, image in enumerate(body["images"]):
        where = f"images[{number}]"
        if ("grid" in image) == ("coordinates" in image):
            found.add(where, "has to have a grid or coordinates, one of them")
        if "grid" in image:
            if len(image["grid"]) not in (2, 3):
                found.add(f"{where}.grid", f"{len(image['grid'])} axes; allowed are 2 and 3")
            cells = math.prod(image["grid"])
            if image["tokens"] != cells:
                found.add(f"{where}.tokens", f"{image['tokens']}, and the grid has {cells} cells")
        elif "coordinates" in image:
            found.same(f"{where}.tokens", image["tokens"], len(image["coordinates"]))
            for token, cell in enumerate(image["coordinates"]):
                if not all(0 <= x <= 1 for x in cell) or len(cell) not in (2, 3):
                    found.add(
                        f"{where}.coordinates[{token}]", f"{shown(cell)} is no place in [0, 1]"
                    )
        if any(len(run) != 2 for run in image["runs"]):
            found.add(f"{where}.runs", "a run is [first position, count]")
            return False
        if image["tokens"] < 1:
            found.add(f"{where}.tokens", "an image without tokens")
            return False
        total = sum(n for _, n in image["runs"])
        if total > body["length"] or total != image["tokens"]:
            found.add(f"{where}.runs", f"{total} tokens, and the image has {image['tokens']}")
            return False
        for place, (first, n) in enumerate(image["runs"]):
            if first < end or (place and first == end) or n < 1:
                found.add(f"{where}.runs[{place}]", f"{[first, n]} behind position {end - 1}")
            end = first + n
    if end > body["length"] and not any(s["selector"] == RESIZED for s in body["stages"]):
        found.add("images", f"runs end at position {end} of {body['length']}")
    return len(found) == count


def _indices(
    where: str, stage: Mapping[str, Any], tokens: int, before: Sequence[int] | None, found: Findings
) -> bool:
    """Whether indices ascend, lie in range and are some of those that were left."""
    indices, count = stage["indices"], len(found)
    found.same(f"{where}.kept", stage["kept"], len(indices))
    for place, index in enumerate(indices):
        if index >= tokens:
            found.add(f"{where}.indices[{place}]", f"{index} of {tokens} tokens")
        if place and index <= indices[place - 1]:
            found.add(f"{where}.indices[{place}]", f"{index} behind {indices[place - 1]}")
    if before is not None:
        left = set(before)
        for place, index in enumerate(indices):
            if index not in left:
                found.add(f"{where}.indices[{place}]", f"{index} was dropped by the stage before")
    return len(found) == count


def _each(where: str, written: Sequence[Any], wanted: Sequence[Any], found: Findings) -> None:
    if len(written) != len(wanted):
        found.add(where, f"{len(written)} entries for {len(wanted)} kept tokens")
        return
    for place, (one, other) in enumerate(zip(written, wanted, strict=True)):
        if one != other:
            found.add(f"{where}[{place}]", f"{one}, recomputed {other} from indices[{place}]")


def _shape(where: str, positions: Sequence[Sequence[Any]], kept: int, found: Findings) -> bool:
    if len(positions) not in (1, 3) or any(len(axis) != kept for axis in positions):
        sizes = [len(axis) for axis in positions]
        found.add(where, f"axes of {sizes} for {kept} kept tokens; allowed are 1 and 3 axes")
        return False
    return True


def _earlier(
    where: str, stage: Mapping[str, Any], told: dict[int, list[Any]], found: Findings
) -> None:
    """A token has the same position at every stage."""
    for place, index in enumerate(stage["indices"]):
        own = [axis[place] for axis in stage["positions"]]
        if told.setdefault(index, own) != own:
            found.add(
                f"{where}.positions", f"{own} of token {index}, {told[index]} at the stage before"
            )


def _positions(
    where: str,
    positions: Sequence[Sequence[Any]],
    indices: Sequence[int],
    body: Mapping[str, Any],
    found: Findings,
) -> None:
    """Original positions are those of the sequence, or of the images' grids."""
    if len(positions) == 1:
        spots = [
            p for i in body["images"] for first, n in i["runs"] for p in range(first, first + n)
        ]
        shifts = [position - spots[i] for position, i in zip(positions[0], indices, strict=True)]
        most = max(set(shifts), key=shifts.count)
        for place, shift in enumerate(shifts):
            if shift != most:
                wanted = spots[indices[place]] + most
                found.same(f"{where}[0][{place}]", positions[0][place], wanted)
        if not most >= 0:
            found.add(f"{where}[0]", f"begin {-most} before the sequence does")
        return
    start, base, known = 0, 0, True
    end = 0  # of the sequence before the image
    for image in body["images"]:
        base += image["runs"][0][0] - end
        still = len(image.get("grid", ())) == 2 and len(image["runs"]) == 1
        token = start
        for _, count in image["runs"] if "grid" in image else []:
            mine = [k for k, i in enumerate(indices) if token <= i < token + count]
            cells = [_cell(indices[k] - start, image["grid"]) for k in mine]
            wanted = base if known and len(image["runs"]) == 1 else None
            _grid_positions(where, positions, mine, cells, still, wanted, found)
            token += count
        known &= still
        base += max(image["grid"]) if still else 0
        end = image["runs"][-1][0] + image["runs"][-1][1]
        start += image["tokens"]


def _cell(token: int, grid: Sequence[int]) -> tuple[int, int, int]:
    """(frame, row, column) of a token."""
    rows, columns = grid[-2:]
    return token // (rows * columns), token // columns % rows, token % columns


def _grid_positions(
    where: str,
    positions: Sequence[Sequence[Any]],
    mine: Sequence[int],
    cells: Sequence[tuple[int, int, int]],
    still: bool,
    base: int | None,
    found: Findings,
) -> None:
    """Height and width count up from one number, and so does time on a still image.

    Args:
        where: the field.
        positions: [3][K].
        mine: places among the kept of the image's tokens.
        cells: (frame, row, column) of each.
        still: whether the image has no frames.
        base: the number, where it follows from what stands before the image.
        found: is added to.
    """
    if not mine:
        return
    if base is None:
        pairs = [(k, cell, axis) for k, cell in zip(mine, cells, strict=True) for axis in (1, 2)]
        counts = [positions[axis][k] - cell[axis] for k, cell, axis in pairs]
        base = max(counts, key=counts.count)
    for k, (_, row, column) in zip(mine, cells, strict=True):
        found.same(f"{where}[1][{k}]", positions[1][k], base + row)
        found.same(f"{where}[2][{k}]", positions[2][k], base + column)
        if still:
            found.same(f"{where}[0][{k}]", positions[0][k], base)
    if still:
        return
    times: dict[int, Any] = {}
    for k, (frame, _, _) in zip(mine, cells, strict=True):
        found.same(f"{where}[0][{k}]", positions[0][k], times.setdefault(frame, positions[0][k]))
    for (one, early), (other, late) in itertools.pairwise(sorted(times.items())):
        if late < early:
            found.add(f"{where}[0]", f"frame {other} at {late} behind frame {one} at {early}")


def _carriers(
    where: str,
    stage: Mapping[str, Any],
    owners: Sequence[int],
    before: Sequence[Mapping[str, Any]],
    found: Findings,
) -> None:
    """Where every token went: kept ones to themselves, others into their own image or nowhere."""
    if "realised" not in stage:
        return
    carrier, mass = stage["realised"]["carrier"], stage["realised"]["mass"]
    source = list(range(stage["tokens"])) if not before else before[-1]["indices"]
    for name, row in (("carrier", carrier), ("mass", mass)):
        if len(row) != stage["tokens"]:
            found.add(
                f"{where}.realised.{name}", f"{len(row)} entries for {stage['tokens']} tokens"
            )
            return
    if len(source) != stage["tokens"]:
        return
    owners = owners if len(owners) == stage["tokens"] else []
    place_of = {index: place for place, index in enumerate(stage["indices"])}
    own = stage.get("image_ids", [])
    for token, position in enumerate(carrier):
        here = f"{where}.realised.carrier[{token}]"
        if not -1 <= position < stage["kept"]:
            found.add(here, f"{position} of {stage['kept']} carriers")
        elif source[token] in place_of:
            found.same(here, position, place_of[source[token]])
        elif position >= 0 and owners and own[position : position + 1] not in ([], [owners[token]]):
            found.add(here, f"image {own[position]} carries a token of image {owners[token]}")
        if mass[token] is None or mass[token] < 0:
            found.add(f"{where}.realised.mass[{token}]", f"{shown(mass[token])} is no mass")
    gate = stage["realised"]["gate"]
    if gate is None or not 0 <= gate <= 1:
        found.add(f"{where}.realised.gate", f"{shown(gate)} is not in [0, 1]")
