"""Faults that a running `embedwatch serve` is put through, each with what was seen; see benchmarks/reliability.py."""

from __future__ import annotations

import http.client
import json
import random
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.reliability_scrapes import Scrapes
from embedwatch.core.snapshot import Snapshot
from embedwatch.daemon.store import Store
from embedwatch.parcels import Parcel
from tests.daemon.damage import DAMAGES
from tests.daemon.hostile import ATTACKS
from tests.daemon.serve_process import ServeProcess, faked_clock
from tests.daemon.serving import ask, npy, send
from tests.polling import poll

MEBI = 1 << 20
DISK, BALLAST = 24 * MEBI, 12 * MEBI
"""Bytes of a disk, and of what lies on it and is removed again."""
KILLS, SENDERS = 25, 2
SHORTEST_LIFE, LONGEST_LIFE = 0.2, 1.5
"""Seconds between ready and SIGKILL."""
JUMPS = ("+0", "-2d", "+2d", "-400d", "+3650d", "+0")
JUMP_SECONDS = 4.0
DAY = 86_400
CRAWLERS = 1_000
CRAWL_SECONDS = 40.0
NAMES = 10_000


def hostile_bodies(folder: Path) -> dict[str, Any]:
    """Send each body of `tests/daemon/hostile.py` to one daemon."""
    found: dict[str, Any] = {}
    with ServeProcess(folder) as daemon:
        send(daemon.port, npy(), "/api/v1/ingest/warm/up")
        for name, attack in ATTACKS.items():
            body = attack.body()
            before = daemon.memory()
            daemon.forget_peak()
            began = time.monotonic()
            reply = send(daemon.port, body, attack.path, attack.kind, **attack.headers)
            found[name] = {
                "status": reply.status,
                "expected": reply.status in attack.statuses,
                "seconds": time.monotonic() - began,
                "peak_mebibytes": max(daemon.memory("VmHWM") - before, 0) / MEBI,
                "alive_after": daemon.alive,
            }
    return found


def kills(folder: Path) -> dict[str, Any]:
    """Kill a daemon under load again and again, and look after each time where every row is."""
    sent = [_Sender(number) for number in range(SENDERS)]
    chance, restarts, wrong, windows = random.Random(KILLS), [], 0, 0  # noqa: S311 - when to kill is no secret
    daemon = ServeProcess(folder, environment={"EMBEDWATCH_EVALUATION__INTERVAL": "1s"})
    for _ in range(KILLS):
        restarts.append(daemon.start())
        threads = [threading.Thread(target=each.talk, args=(daemon.port,)) for each in sent]
        for thread in threads:
            thread.start()
        time.sleep(chance.uniform(SHORTEST_LIFE, LONGEST_LIFE))
        daemon.kill()
        for thread in threads:
            thread.join()
        rows, windows = _stored(daemon.storage)
        wrong += sum(rows[each.place] - each.rows not in (0, each.unanswered) for each in sent)
    return {
        "kills": KILLS,
        "acknowledged_parcels": sum(each.acknowledged for each in sent),
        "acknowledged_rows": sum(each.rows for each in sent),
        "windows_closed": windows,
        "places_with_rows_lost_or_twice": wrong,
        "longest_start_seconds": max(restarts),
    }


class _Sender:
    """Sends rows with a number each; what was not answered is sent again to the next process."""

    def __init__(self, number: int) -> None:
        self.place, self.random = f"p{number}", random.Random(number)  # noqa: S311 - no secret
        self.number, self.rows, self.unanswered, self.acknowledged = 0, 0, 0, 0

    def talk(self, port: int) -> None:
        """Go on until the other end is gone."""
        with suppress(OSError, http.client.HTTPException):
            while True:
                if not self.unanswered:
                    self.number += 1
                    self.unanswered = self.random.randint(1, 200)
                path = f"/api/v1/ingest/m/{self.place}?sender={self.place}&number={self.number}"
                if send(port, npy(self.unanswered, 32), path).status == 202:
                    self.rows += self.unanswered
                    self.acknowledged += 1
                    self.unanswered = 0


def _stored(storage: Path) -> tuple[Counter[str], int]:
    """Return the rows of each place in Snapshots, open windows and the inbox, and the number of windows."""
    rows: Counter[str] = Counter()
    windows = 0
    with closing(Store(storage)) as store:
        for space, kept in store.restore().items():
            parcels = [data for _, data in kept.entries] + ([kept.window] if kept.window is not None else [])
            rows[space.place] += sum(Parcel.from_bytes(data).rows for data in parcels)
            rows[space.place] += sum(Snapshot.from_json(each).provenance.rows for each in kept.snapshots)
            windows += len(kept.snapshots) if space.model == "m" else 0
    return rows, windows


@contextmanager
def small_disk(folder: Path, size: int = DISK) -> Iterator[Path]:
    """Mount a disk in memory; needs root."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def full_disk(folder: Path) -> dict[str, Any]:
    """Send until the disk is full, make room, send again, and restart."""
    with small_disk(folder / "disk") as disk, (disk / "ballast").open("wb") as ballast:
        ballast.write(bytes(BALLAST))
        ballast.flush()
        with ServeProcess(folder, storage=disk / "state") as daemon:
            taken, body = 0, npy(2_000, 128)
            reply = send(daemon.port, body)
            while reply.status == 202:
                taken += 1
                reply = send(daemon.port, body, f"/api/v1/ingest/m/p{taken % 4}")
            full = {"status": reply.status, "retry_after": reply.headers.get("retry-after"), "error": reply.error}
            alive, scraped = daemon.alive, ask(daemon.port, "/metrics").status
            (disk / "ballast").unlink()
            ballast.truncate(0)
            poll(lambda: send(daemon.port, body).status == 202)
            exit_status = daemon.stop()
            rows = 2_000 * (taken + 1)
            daemon.start()
            kept = poll(lambda: _open_rows(daemon), until=lambda found: found >= rows)
    return {
        **full,
        "alive_while_full": alive,
        "scrape_while_full": scraped,
        "takes_again_when_there_is_room": True,
        "exit_status": exit_status,
        "rows_acknowledged": rows,
        "rows_after_restart": kept,
    }


def _open_rows(daemon: ServeProcess) -> int:
    return sum(each["open_rows"] for each in ask(daemon.port, "/api/v1/spaces").json)


def clock_jumps(folder: Path) -> dict[str, Any]:
    """Let the wall clock jump under a daemon whose windows close every second; the other clocks go on."""
    offset = folder / "offset"
    offset.write_text(JUMPS[0], encoding="ascii")
    environment = {**faked_clock(offset), "EMBEDWATCH_EVALUATION__INTERVAL": "1s"}
    found: dict[str, Any] = {}
    with ServeProcess(folder, environment=environment) as daemon:
        for jump in JUMPS:
            offset.write_text(jump + "\n", encoding="ascii")
            before, statuses, end = daemon.status()["rounds"], Counter[int](), time.monotonic() + JUMP_SECONDS
            while time.monotonic() < end:
                statuses[send(daemon.port, npy()).status] += 1
                time.sleep(0.1)
            found[f"{len(found)}: {jump}"] = {
                "statuses": dict(statuses),
                "rounds_a_second": (daemon.status()["rounds"] - before) / JUMP_SECONDS,
                "wall_clock_off_days": _days_off(daemon),
                "alive": daemon.alive,
                "scrape": ask(daemon.port, "/metrics").status,
            }
        offset.write_text(JUMPS[1] + "\n", encoding="ascii")
        found["restart two days back"] = {"exit_status": daemon.stop(), "seconds": daemon.start()}
        found["restart two days back"]["statuses"] = {send(daemon.port, npy()).status: 1}
        found["restart two days back"]["alive"] = daemon.alive
    return found


def _days_off(daemon: ServeProcess) -> float:
    """Return how far the date of the last window is from the right one."""
    (space,) = [each for each in ask(daemon.port, "/api/v1/spaces").json if each["space"]["model"] == "m"]
    return float((space["time"] - time.time()) / DAY)


def damaged_state(folder: Path) -> dict[str, Any]:
    """Start on a state that was damaged in each of several ways."""
    good = folder / "good"
    good.mkdir()
    with ServeProcess(good) as daemon:
        for number in range(40):
            send(daemon.port, npy(200, 32), f"/api/v1/ingest/m/p{number}")
        daemon.kill()
    found: dict[str, Any] = {}
    for name, damage in DAMAGES.items():
        there = folder / name.replace(" ", "-")
        shutil.copytree(good, there)
        damage(there / "state" / "state.sqlite")
        with ServeProcess(there) as daemon:
            state, restored = daemon.status()["state"], daemon.status()["spaces"]
            reply = send(daemon.port, npy(50, 32), "/api/v1/ingest/m/again")
            found[name] = {
                "spaces_restored": restored,
                "said_damaged": state["damaged"],
                "unrestored": state["unrestored"],
                "set_aside": sorted(each.suffix for each in (there / "state").glob("*.damaged-*")),
                "takes_rows": reply.status,
                "alive": daemon.alive,
            }
    return found


def slow_clients(folder: Path) -> dict[str, Any]:
    """Keep a thousand connections that say a letter every few seconds, beside an honest sender and scrapes."""
    with ServeProcess(folder) as daemon:
        quiet = daemon.memory()
        stop = threading.Event()
        crawlers = threading.Thread(target=_crawl, args=(daemon.port, stop))
        with Scrapes(daemon.port) as scrapes:
            crawlers.start()
            honest: Counter[str] = Counter()
            end = time.monotonic() + CRAWL_SECONDS
            while time.monotonic() < end:
                try:
                    honest[str(send(daemon.port, npy()).status)] += 1
                except OSError as error:
                    honest[type(error).__name__] += 1
                time.sleep(0.1)
            grown = daemon.memory() - quiet
        stop.set()
        crawlers.join()
        return {
            "connections": CRAWLERS,
            "honest": dict(honest),
            **scrapes.figures(),
            "grown_mebibytes": grown / MEBI,
            "alive_after": daemon.alive,
        }


def _crawl(port: int, stop: threading.Event) -> None:
    """Keep many connections in the middle of a head or a body; one that is cut comes again."""
    head = b"POST /api/v1/ingest/m/p HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-npy\r\n"
    starts = (head, head + b"Content-Length: 100000\r\n\r\n", b"G", head + b"Transfer-Encoding: chunked\r\n\r\n")
    held: list[socket.socket | None] = [None] * CRAWLERS
    while not stop.is_set():
        for number, each in enumerate(held):
            try:
                if each is None:
                    held[number] = each = socket.create_connection(("127.0.0.1", port), timeout=1)
                    each.sendall(starts[number % len(starts)])
                else:
                    each.sendall(b"X")
            except OSError:
                if each is not None:
                    each.close()
                held[number] = None
            if stop.is_set():
                break
        stop.wait(0.5)
    for each in held:
        if each is not None:
            each.close()


def many_names(folder: Path) -> dict[str, Any]:
    """Send rows of ten thousand different models, places or segments."""
    found: dict[str, Any] = {}
    for label, path in (("model", "m{}/p"), ("place", "m/p{}"), ("segment", "m/p?segment=s{}")):
        there = folder / label
        there.mkdir()
        with ServeProcess(there, environment={"EMBEDWATCH_EVALUATION__INTERVAL": "5s"}) as daemon:
            before, answers = daemon.memory(), Counter[int]()
            began = time.monotonic()
            connection, body = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60), npy(4, 8)
            with Scrapes(daemon.port) as scrapes:
                for number in range(NAMES):
                    target = "/api/v1/ingest/" + path.format(number)
                    connection.request("POST", target, body, {"Content-Type": "application/x-npy"})
                    reply = connection.getresponse()
                    reply.read()
                    answers[reply.status] += 1
            connection.close()
            _two_rounds(daemon)
            page = ask(daemon.port, "/metrics").body
            found[label] = {
                "answers": dict(answers),
                "seconds": time.monotonic() - began,
                **scrapes.figures(),
                "series": sum(not line.startswith(b"#") for line in page.splitlines()),
                "page_mebibytes": len(page) / MEBI,
                "grown_mebibytes": (daemon.memory() - before) / MEBI,
                "spaces": daemon.status()["spaces"],
                "alive_after": daemon.alive,
            }
    return found


def _two_rounds(daemon: ServeProcess) -> None:
    """Wait until all that was sent is judged."""
    rounds = daemon.status()["rounds"]
    poll(lambda: daemon.status()["rounds"] > rounds + 1, deadline=120)


FAULTS = {
    "hostile_bodies": hostile_bodies,
    "kills": kills,
    "full_disk": full_disk,
    "clock_jumps": clock_jumps,
    "damaged_state": damaged_state,
    "slow_clients": slow_clients,
    "many_names": many_names,
}


def shown(name: str, found: dict[str, Any]) -> str:
    """Return figures as lines for people."""
    lines = [f"## {name}"]
    for key, value in found.items():
        lines.append(f"{key:34} {json.dumps(value) if isinstance(value, dict) else value}")
    return "\n".join(lines)
