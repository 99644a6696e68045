"""What is written is whole or not there, and nothing that is no file is replaced or waited for."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from onelayer.disk import replace_file, replace_files
from onelayer.errors import FileError


@pytest.mark.parametrize("linked", [False, True])
def test_what_is_no_file_is_not_replaced(tmp_path: Path, linked: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    place = tmp_path / "name"
    if linked:
        place.symlink_to(pipe)
    with pytest.raises(FileError, match="not a regular file; choose another name"):
        replace_file(place if linked else pipe, b"x")
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)
    assert sorted(item.name for item in tmp_path.iterdir()) == (["name", "pipe"] if linked else ["pipe"])


def test_links_to_files_and_to_nothing_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    for name, target in (("link", "file"), ("dangling", "nowhere")):
        (tmp_path / name).symlink_to(tmp_path / target)
        replace_file(tmp_path / name, b"new")
        assert (tmp_path / name).read_bytes() == b"new"
    assert (tmp_path / "file").read_bytes() == b"old"


def two(last: Callable[[Path], object]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "a").write_bytes(b"1")
        last(folder / "b")

    return write


def test_files_of_another_library_are_put_whole(tmp_path: Path) -> None:
    replace_files(tmp_path / "out", two(lambda path: path.write_bytes(b"2")))
    assert [item.read_bytes() for item in sorted((tmp_path / "out").iterdir())] == [b"1", b"2"]


def test_a_library_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fails(path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        replace_files(tmp_path / "out", two(fails))
    assert list(tmp_path.iterdir()) == []
