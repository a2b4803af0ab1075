"""Threads, the libraries that make them, forks, and the device of torch."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embedwatch.cli.doctor.findings import Finding

__all__ = ["examine_machine", "fork_hangs", "judge_pools", "judge_threads", "usable_cores"]

PART = "machine"
CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
"""Where Linux says how much of the processors a container may use: quota and period in µs."""
FORK_LIMIT = 60.0
"""Seconds for the trial of a fork, most of which are the import of torch."""
FORK = """
import os, sys, time, torch
torch.set_num_threads(int(sys.argv[1]))
torch.ones(1 << 22).sum()  # now the threads of the parent exist
child = os.fork()
if child == 0:
    torch.ones(1 << 22).sum()  # those threads are not in the child, and OpenMP waits for them
    os._exit(0)
end = time.monotonic() + 3
while time.monotonic() < end:
    if os.waitpid(child, os.WNOHANG)[0]:
        print("goes on")
        break
    time.sleep(0.02)
else:
    os.kill(child, 9)
    os.waitpid(child, 0)
    print("hangs")
"""


def examine_machine() -> list[Finding]:
    """Return threads, the libraries that make them, what a fork would do, and the device."""
    import torch
    from threadpoolctl import threadpool_info

    threads = torch.get_num_threads()
    return [
        judge_threads(threads, usable_cores(), os.environ),
        judge_pools(threadpool_info()),
        _fork(threads),
        _device(torch),
    ]


def usable_cores(limit: Path = CPU_MAX) -> float:
    """Return the processors that this process may use: those it may run on, or less where a container has a quota.

    Args:
        limit: file with quota and period.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    try:
        quota, period = limit.read_text(encoding="ascii").split()
        return min(cores, int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max": no quota
        return cores


def judge_threads(threads: int, cores: float, environment: Mapping[str, str]) -> Finding:
    """Return whether torch makes more threads than there are processors for."""
    told = environment.get("OMP_NUM_THREADS")
    said = f"torch takes {threads} of {cores:g} cores; OMP_NUM_THREADS is {told or 'not set'}"
    if threads > cores:
        least = max(1, int(cores))
        return Finding(
            PART, "threads", "warn", said, f"set OMP_NUM_THREADS={least}: threads without a core wait spinning"
        )
    return Finding(PART, "threads", "ok", said)


def judge_pools(pools: Sequence[Mapping[str, Any]]) -> Finding:
    """Return the libraries that keep threads, and whether two of them are known to hang each other.

    Intel's and LLVM's OpenMP in one process may crash or hang on Linux; GNU's beside either, or twice, is usual.

    References:
        threadpoolctl, "Known Limitations" and multiple_openmp.md.
    """
    kinds = {str(pool["prefix"]) for pool in pools if pool["user_api"] == "openmp"}
    told = ", ".join(
        f"{_library(pool)} ({pool['num_threads']})"
        for pool in sorted(pools, key=lambda pool: (_library(pool), str(pool["filepath"])))
    )
    if {"libiomp", "libomp"} <= kinds:
        remedy = "keep to one source of packages, pip or conda, so that all share one OpenMP"
        return Finding(PART, "blas", "warn", f"OpenMP of Intel and of LLVM in one process: {told}", remedy)
    return Finding(PART, "blas", "ok", f"threads of {told or 'no library'}")


def _library(pool: Mapping[str, Any]) -> str:
    name = pool["prefix"] if pool["user_api"] == "openmp" else pool["internal_api"]
    return " ".join(filter(None, (str(name), pool.get("version"))))


def fork_hangs(threads: int) -> bool | None:
    """Return whether a forked child hangs where it computes on several threads, tried in a process of its own.

    Returns:
        `None` where the trial itself did not end as it should.
    """
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(threads)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORK_LIMIT, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return {"hangs": True, "goes on": False}.get(done.stdout.strip())


def _fork(threads: int) -> Finding:
    if not hasattr(os, "fork"):
        return Finding(PART, "fork", "ok", "this system starts processes without a fork")
    if threads == 1:
        return Finding(PART, "fork", "ok", "torch takes one thread: a forked process has nothing to wait for")
    method = multiprocessing.get_context().get_start_method()
    hangs = fork_hangs(threads)
    if hangs is None:
        return Finding(PART, "fork", "info", f"not known; multiprocessing starts by {method}")
    if not hangs:
        return Finding(PART, "fork", "ok", f"a forked process computes on {threads} threads")
    told = f"a process forked after torch computed on {threads} threads hangs; multiprocessing starts by {method}"
    if method != "fork":
        return Finding(PART, "fork", "ok", f"{told}, so only os.fork is concerned")
    remedy = 'multiprocessing.set_start_method("spawn"), or OMP_NUM_THREADS=1 before Python starts'
    return Finding(PART, "fork", "warn", told, remedy)


def _device(torch: Any) -> Finding:
    name = f"torch {torch.__version__}"
    if torch.cuda.is_available():
        seen = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        each = ", ".join(f"{one.name} ({one.total_memory / 2**30:.0f} GiB)" for one in seen)
        return Finding(PART, "device", "ok", f"{name} on {each}")
    if torch.backends.mps.is_available():
        return Finding(PART, "device", "ok", f"{name} on Apple's GPU")
    built = torch.version.cuda or torch.version.hip
    if built:
        told = f"{name} is built for CUDA or ROCm {built} and sees no device; it computes on the CPU"
        return Finding(PART, "device", "info", told, "where there is a GPU, look at its driver: nvidia-smi or rocm-smi")
    return Finding(PART, "device", "ok", f"{name} on the CPU, for which it is built")
