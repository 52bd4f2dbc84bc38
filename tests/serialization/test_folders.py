"""Folders that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap

import pytest

from spectrograd.graph import GraphError
from spectrograd.serialization import folders
from spectrograd.serialization.folders import new_folder, read_manifest, write_manifest


def write(target, text, **options):
    with new_folder(target, **options) as draft:
        (draft / "data.bin").write_text(text)
        write_manifest(draft, {"text": text})


def test_a_folder_appears_when_all_of_it_is_there(tmp_path):
    target = tmp_path / "a"
    with new_folder(target) as draft:
        write_manifest(draft, {"n": 1})
        assert not target.exists()
    assert read_manifest(target) == {"n": 1}
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_only_folders_of_ours_are_replaced_and_only_when_asked(tmp_path, monkeypatch, can_exchange):
    if not can_exchange:
        monkeypatch.setattr(folders, "_exchange", lambda one, other: False)
    target = tmp_path / "a"
    write(target, "old")
    with pytest.raises(GraphError, match="exists already; --force"):
        write(target, "new")
    write(target, "new", replace=True)
    assert read_manifest(target) == {"text": "new"}
    other = tmp_path / "photos"
    other.mkdir()
    (other / "dog.jpg").write_text("woof")
    with pytest.raises(GraphError, match="is no store"):
        write(other, "new", replace=True)
    assert sorted(os.listdir(tmp_path)) == ["a", "photos"]
    assert os.listdir(other) == ["dog.jpg"]


def test_an_error_leaves_what_was_there(tmp_path):
    target = tmp_path / "a"
    write(target, "old")
    with pytest.raises(UnicodeEncodeError):  # in the middle of the work
        write(target, "half \ud800", replace=True)
    with pytest.raises(OSError, match="the disk is full") as caught, new_folder(target, replace=True):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(target)
    assert os.listdir(tmp_path) == ["a"]
    assert read_manifest(target) == {"text": "old"}
    with pytest.raises(GraphError, match="create it first"):
        write(tmp_path / "nowhere" / "a", "x")


def test_a_reader_sees_the_old_folder_until_the_new_one_is_whole(tmp_path):
    target = tmp_path / "a"
    write(target, "old")
    with open(target / "data.bin") as reader, new_folder(target, replace=True) as draft:
        (draft / "data.bin").write_text("new")
        write_manifest(draft, {"text": "new"})
        assert read_manifest(target) == {"text": "old"}
        assert reader.read() == "old"
    assert (target / "data.bin").read_text() == "new"


HOLD = """
    import sys, time
    from pathlib import Path
    from spectrograd.serialization.folders import new_folder
    with new_folder(Path(sys.argv[1]), replace=True) as draft:
        (draft / "half.bin").write_text("x")
        print("writing", flush=True)
        time.sleep(60)
"""


def test_the_second_writer_is_refused_and_a_dead_one_leaves_no_lock(tmp_path):
    target = tmp_path / "a"
    write(target, "old")
    first = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLD), str(target)], stdout=subprocess.PIPE
    )
    try:
        assert first.stdout.readline().strip() == b"writing"
        with pytest.raises(GraphError, match=f"process {first.pid} is writing it"):
            write(target, "new", replace=True)
    finally:
        first.kill()
        first.wait()
    assert read_manifest(target) == {"text": "old"}
    assert len(os.listdir(tmp_path)) > 1  # the draft and the lock of the dead one
    write(target, "new", replace=True)
    assert read_manifest(target) == {"text": "new"}
    assert os.listdir(tmp_path) == ["a"]


def test_manifests_say_what_is_wrong_with_them(tmp_path):
    with pytest.raises(GraphError, match=r"meta\.json: No such file"):
        read_manifest(tmp_path)
    write_manifest(tmp_path, {"n": 17})
    path = tmp_path / "meta.json"
    good = path.read_text()
    for bad, what in ((good.replace("17", "18"), "checksum"), (good[:-9], "damaged"), ("[]", "no object")):
        path.write_text(bad)
        with pytest.raises(GraphError, match=what):
            read_manifest(tmp_path)
    path.write_text("[" * 100_000)
    with pytest.raises(GraphError, match="damaged"):
        read_manifest(tmp_path)
