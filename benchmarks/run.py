"""`make bench`: the solver beside its plain form, every stage beside one pass over the clients,
and compression inside a model beside the bare model.

Each table comes from a process of its own, one per thread count; ratios are of medians measured
there side by side. Memory is the rise of a fresh process's peak resident size.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

from population import blocks, population

from vicoset.core import coreset, realise
from vicoset.core.clients import Clients
from vicoset.core.kernels import compiled
from vicoset.core.reference import select_plain
from vicoset.core.settings import Settings
from vicoset.core.support import select_support

STANDARD, LONG = 36, 126
MIB = 1 << 20


def formula(
    matrix: Tensor, keep: int, batch: int = 16, pool: int = 64, tau: float = 0.1
) -> set[int]:
    """The solver as the paper writes it, client-major, no thought given to memory or ties."""
    covered = matrix.new_zeros(matrix.shape[0])
    chosen: list[int] = []
    while len(chosen) < keep:
        residual = (matrix - covered[:, None]).clamp(min=0)
        gains = residual.sum(0)
        gains[chosen] = 0
        candidates = gains.topk(pool).indices
        seen = residual[:, candidates]
        share = torch.softmax(seen / (tau * seen.amax(1, keepdim=True) + 1e-30), 1)
        scores = (share * seen).sum(0)
        picks = candidates[scores.topk(min(batch, keep - len(chosen))).indices]
        chosen += picks.tolist()
        covered = torch.maximum(covered, matrix[:, picks].amax(1))
    return set(chosen)


def interleaved(tasks: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each task, run in turn so that a busy moment hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(repeats + 1):  # the first turn warms up
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            if number:
                times[name].append(time.perf_counter() - start)
        print(f"\r  turn {number}/{repeats}", end="", file=sys.stderr, flush=True)
    print("\r" + " " * 30 + "\r", end="", file=sys.stderr)
    return {name: statistics.median(values) for name, values in times.items()}


def one_pass(clients: Clients) -> Callable[[], object]:
    """The floor: every offer is read once."""
    return lambda: clients.matrix.t().sum(1)


def solver(repeats: int) -> None:
    """Plain and fast solver at 4,072 clients x 1,296 tokens."""
    page = population(STANDARD)
    grounding = coreset.ground([block.read() for block in blocks(STANDARD)])
    clients = coreset.clients_of(page, grounding)
    matrix, client_major = clients.matrix, clients.matrix.contiguous()
    rows, tokens = matrix.shape
    print(f"\nSolver, {rows:,} clients x {tokens:,} tokens, {torch.get_num_threads()} thread(s)\n")
    print("| K | one pass | fast | plain | plain / fast | as the paper writes it | its ratio |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for keep in (128, 256):
        fast = select_support(matrix, keep)
        assert sorted(select_plain(matrix, keep)) == fast.indices.tolist()
        same = len(formula(client_major, keep) & set(fast.indices.tolist()))
        assert same >= 0.95 * keep, f"{same} of {keep} indices as in the formula"
        took = interleaved(
            {
                "pass": one_pass(clients),
                "fast": lambda keep=keep: select_support(matrix, keep),
                "plain": lambda keep=keep: select_plain(client_major, keep),
                "formula": lambda keep=keep: formula(client_major, keep),
            },
            repeats,
        )
        ms = {name: 1e3 * seconds for name, seconds in took.items()}
        print(
            f"| {keep} | {ms['pass']:.2f} ms | {ms['fast']:.1f} ms | {ms['plain']:.0f} ms | "
            f"**{ms['plain'] / ms['fast']:.1f}** | {ms['formula']:.0f} ms | "
            f"{ms['formula'] / ms['fast']:.1f} |"
        )


def stages(side: int, keep: int, repeats: int) -> None:
    """Every stage of one coreset beside one pass over its client matrix."""
    settings = Settings()
    page, current = population(side), blocks(side)
    readings = [block.read() for block in current]
    grounding = coreset.ground(readings)
    clients = coreset.clients_of(page, grounding)
    tokens = len(page.states)
    batch = settings.solver_batch(tokens)
    kept = select_support(clients.matrix, keep, batch=batch)
    assigned = realise.assign(*page[:3], kept.indices, images=1)
    mass = realise.population_mass(grounding.energy, assigned.gate)
    took = interleaved(
        {
            "one pass over the clients": one_pass(clients),
            "messages": lambda: coreset.ground([block.read() for block in current]),
            "banks": lambda: coreset.clients_of(page, grounding),
            "selection": lambda: select_support(clients.matrix, keep, batch=batch),
            "assignment": lambda: realise.assign(*page[:3], kept.indices, images=1),
            "transport": lambda: realise.transport(
                page.states, kept.indices, assigned.carrier, mass
            ),
        },
        repeats,
    )
    floor = took["one pass over the clients"]
    rows = len(clients.matrix)
    print(
        f"\nStages, N = {tokens:,}, K = {keep:,}, {rows:,} clients, batch {batch}, "
        f"{torch.get_num_threads()} thread(s)\n"
    )
    print("| stage | time | passes over the clients |\n|---|---:|---:|")
    for name, seconds in took.items():
        print(f"| {name} | {1e3 * seconds:.1f} ms | {seconds / floor:.1f} |")


def resident() -> int:
    """Bytes resident now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_rise(task: Callable[[], object]) -> int:
    """By how many bytes a task lifts the resident size at its peak."""
    with contextlib.suppress(AttributeError):  # not in every C library
        ctypes.CDLL(None).malloc_trim(0)  # freed memory that is still held would hide a rise
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    before = resident()
    task()
    status = Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) * 1024 - before


def memory(side: int, keep: int) -> None:
    """Peak extra memory of the solver, and of selection and transport together."""
    if not Path("/proc/self/clear_refs").exists():
        print("\nMemory is measured on Linux only.")
        return
    small = population(6)
    small_readings = [block.read() for block in blocks(6)]
    coreset.build_coreset(small, small_readings, 20)  # load and compile everything first
    select_support(torch.rand(1300, 1000) ** 8, 40)
    page = population(side)
    readings = [block.read() for block in blocks(side)]
    grounding = coreset.ground(readings)
    clients = coreset.clients_of(page, grounding)
    batch = Settings().solver_batch(len(page.states))
    size = clients.matrix.numel() * clients.matrix.element_size()
    matrix = clients.matrix
    del clients, grounding
    rise = peak_rise(partial(select_support, matrix, keep, batch=batch))
    del matrix
    whole = peak_rise(lambda: coreset.build_coreset(page, readings, keep))
    print(
        f"| {len(page.states):,} | {keep:,} | {size / MIB:.0f} MiB | {rise / MIB:.0f} MiB | "
        f"{rise / size:.2f} | {whole / MIB:.0f} MiB |"
    )


def child(*words: object, threads: int = 1) -> None:
    """Run one table in a process of its own."""
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",  # threads that spin would lose a core to any busy neighbour
    }
    apart = words[0] in ("inside", "auditing")  # tables that are programs of their own
    script = Path(__file__).with_name(f"{words[0]}.py") if apart else Path(__file__)
    numbers = words[1:] if apart else words
    command = [sys.executable, str(script), *map(str, numbers)]
    subprocess.run(command, check=True, env=environment)


def main() -> None:
    """All tables, or the one named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="?", choices=["solver", "stages", "memory"])
    parser.add_argument("numbers", nargs="*", type=int, help="side and K for stages and memory")
    parser.add_argument("--repeats", type=int, default=15, help="timed turns (default 15)")
    chosen = parser.parse_args()
    if chosen.table == "solver":
        solver(chosen.repeats)
    elif chosen.table == "stages":
        stages(*chosen.numbers, chosen.repeats)
    elif chosen.table == "memory":
        memory(*chosen.numbers)
    else:
        print(
            f"torch {torch.__version__}, Python {platform.python_version()}, "
            f"{os.cpu_count()} cores, compiled loops: {'yes' if compiled() else 'no'}; "
            f"medians of {chosen.repeats} turns",
            flush=True,
        )
        threads = [n for n in (1, 2) if n <= (os.cpu_count() or 1)]
        for count in threads:
            child("solver", "--repeats", chosen.repeats, threads=count)
        for count in threads:
            child("stages", STANDARD, 128, "--repeats", max(3, chosen.repeats // 3), threads=count)
        child("stages", LONG, 4096, "--repeats", 2, threads=threads[-1])
        print("\nPeak memory above what stood before, 1 thread\n", flush=True)
        print("| N | K | client matrix | solver | solver / matrix | whole coreset |")
        print("|---:|---:|---:|---:|---:|---:|", flush=True)
        child("memory", STANDARD, 128)
        child("memory", LONG, 4096)
        child("inside", max(3, chosen.repeats // 4), threads=threads[-1])
        child("auditing", "--repeats", max(3, chosen.repeats // 5), threads=threads[-1])


if __name__ == "__main__":
    main()
