"""Files are written whole or not at all, and what is no file is never replaced by one."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from embedwatch.core.errors import UsageError
from embedwatch.sources.row_files import check_output
from embedwatch.whole_files import is_special, write_whole

TOLD = b"what is told\n" * 9_000


def test_a_file_is_replaced_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    write_whole(path, TOLD)
    assert path.read_bytes() == TOLD
    assert list(tmp_path.iterdir()) == [path]
    assert not is_special(path)
    assert not is_special(tmp_path)
    assert not is_special(tmp_path / "none")


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path, linked: bool) -> None:
    pipe = tmp_path / "pipe.npy"
    os.mkfifo(pipe)
    named = tmp_path / "link.npy"
    named.symlink_to(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_whole(named if linked else pipe, TOLD)
    reader.join(10)
    assert read == [TOLD]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert named.is_symlink()
    with pytest.raises(UsageError, match="a device or a pipe; choose another name"):
        check_output(pipe)


@pytest.mark.parametrize("name", ["/dev/null", "/dev/full", "/dev/stdout"])
def test_devices_are_not_replaced(name: str) -> None:
    assert not Path(name).exists() or is_special(Path(name))


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="only Linux has /dev/shm")
def test_files_in_memory_are_replaced_as_any() -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        path = Path(file.name)
        assert not is_special(path)
        before = path.stat().st_ino
        write_whole(path, TOLD)
        assert path.stat().st_ino != before, "renamed into place: a reader never sees a half"


def test_the_standard_output_of_a_shell_gets_what_is_written(tmp_path: Path) -> None:
    script = "import sys; from pathlib import Path; from embedwatch.whole_files import write_whole"
    script += "; write_whole(Path('/dev/stdout'), b'told')"
    out = tmp_path / "out.txt"
    with out.open("wb") as file:
        subprocess.run([sys.executable, "-c", script], stdout=file, check=True)
    assert out.read_bytes() == b"told"
