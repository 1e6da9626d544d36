"""Files are complete or absent."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path

import pytest

from scaleformer.system.files import atomic_writer, check_file, check_folder, replaced


def test_a_writer_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")

    def fail() -> None:
        with atomic_writer(path) as file:
            file.write("new")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]


def test_gzip_by_name(tmp_path):
    with atomic_writer(tmp_path / "out.jsonl.gz") as file:
        file.write("año\n")
    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()).decode() == "año\n"


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path):
    (tmp_path / "real").write_text("old")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    with atomic_writer(link) as file:
        file.write("new")
    assert link.is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    with atomic_writer(os.devnull) as file:
        file.write("gone")
    assert not Path(os.devnull).is_file()


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(OSError, match="is a folder"), atomic_writer(tmp_path):
        pass


def test_a_failed_write_keeps_the_old_file_and_names_it(tmp_path):
    path = tmp_path / "folder" / "data.bin"
    with replaced(path) as temporary:
        temporary.write_bytes(b"old")
    assert path.read_bytes() == b"old"

    def fail() -> None:
        with replaced(path) as temporary:
            temporary.write_bytes(b"ne")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left") as error:
        fail()
    assert error.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_is_created_and_tested(tmp_path):
    check_folder(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").write_text("kept")
    with pytest.raises(FileExistsError, match="file"):
        check_folder(tmp_path / "file")


def test_an_output_file_needs_an_existing_folder(tmp_path):
    check_file("output", str(tmp_path / "new.txt"))
    check_file("output", None)
    check_file("output", "-")
    with pytest.raises(ValueError, match=r"output=.*/resutls/out\.txt: there is no folder .*/resutls: correct"):
        check_file("output", f"{tmp_path}/resutls/out.txt")
    with pytest.raises(ValueError, match=r"there is no folder .*/out/"):
        check_file("output", f"{tmp_path}/out/")
    with pytest.raises(ValueError, match=r"is a folder: wanted a file name"):
        check_file("output", f"{tmp_path}/")
    assert not list(tmp_path.iterdir())
