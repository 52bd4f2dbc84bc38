"""Checkpoint files: whole or refused, the one before kept, and never another run's."""

from __future__ import annotations

import os
import struct
import subprocess
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from spectrograd.graph import GraphError, GraphWarning
from spectrograd.serialization.checkpoint_folder import CheckpointError, open_checkpoints
from spectrograd.serialization.codec import MAGIC, DamagedFileError, read_header, read_value, write_value

MINE = {"spectrograd": "0.1.0", "graph": "a", "seed": 0}


def kept(number):
    return lambda sink: {"number": number, "at": sink.add(np.full(1000, float(number)))}


def opened(path, **identity):
    return open_checkpoints(path, lambda before: MINE | identity)


@pytest.fixture
def folder(tmp_path):
    """Three states of a solve were written, of which two are left."""
    with opened(tmp_path / "run") as checkpoints:
        for number in range(3):
            checkpoints.save_state(0, kept(number))
    return tmp_path / "run"


def newest(folder):
    with opened(folder) as checkpoints:
        found = checkpoints.state(0)
    return None if found is None else (found[1][0]["number"], found[1][1][0][0])


@pytest.mark.parametrize(
    "array",
    [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
     np.zeros((0, 3)), np.array(True), np.arange(20)[::3], np.array([np.nan, -0.0, np.inf])],
)  # fmt: skip
def test_arrays_come_back_bit_by_bit(tmp_path, array):
    path = tmp_path / "value"
    write_value(path, {"who": "me"}, lambda sink: [sink.add(array), sink.add(array)])
    value, (again,) = read_value(path)
    assert value == [0, 0]
    assert again.dtype == array.dtype
    assert again.tobytes() == array.tobytes()
    assert again.flags.f_contiguous == array.flags.f_contiguous or array.base is not None
    assert read_header(path) == {"who": "me"}
    with pytest.raises(GraphError, match="an array of object cannot be saved"):
        write_value(path, {}, lambda sink: sink.add(np.array([None])))
    assert os.listdir(tmp_path) == ["value"]
    assert read_value(path)[0] == [0, 0]  # the failed one left the earlier alone


def test_every_cut_and_every_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "value"
    write_value(path, {}, lambda sink: [sink.add(np.arange(8.0)), 1.5])
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(DamagedFileError):
            read_value(path)
    padding = {*range(len(MAGIC) + 4, 64), *range(len(good) - 12, len(good) - 8)}
    for at in sorted({*range(len(good))} - padding - {*range(len(MAGIC), len(MAGIC) + 4)}):
        path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        with pytest.raises(DamagedFileError):
            read_value(path)
    path.write_bytes(good.replace(MAGIC + struct.pack("<I", 3), MAGIC + struct.pack("<I", 4)))
    with pytest.raises(GraphError, match="of format 4; this release reads format 3"):
        read_value(path)


def test_the_newest_is_taken_and_the_one_before_is_kept(folder):
    assert sorted(os.listdir(folder)) == ["solve-000-state-000002.ckpt", "solve-000-state-000003.ckpt"]
    assert newest(folder) == (2, 2.0)
    with opened(folder) as checkpoints:
        assert checkpoints.result(0) is None
        checkpoints.save_result(0, kept(9))
        checkpoints.save_state(1, kept(3))
        assert checkpoints.result(0)[1][0]["number"] == 9
    assert sorted(os.listdir(folder)) == ["solve-000-result.ckpt", "solve-001-state-000001.ckpt"]


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_one_falls_back_and_two_are_an_error(folder, damage):
    for number, left in ((3, 1), (2, 0)):
        path = folder / f"solve-000-state-{number:06d}.ckpt"
        good = path.read_bytes()
        path.write_bytes(good[:-7] if damage == "cut" else good[:999] + bytes([good[999] ^ 1]) + good[1000:])
        if left:
            with pytest.warns(GraphWarning, match=r"000003.ckpt: damaged .*; going on from the one before"):
                assert newest(folder) == (1, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(CheckpointError, match="remove this one to begin anew"):
            newest(folder)


def test_a_damaged_result_falls_back_to_the_last_state(folder):
    with opened(folder) as checkpoints:
        checkpoints.save_result(0, kept(9))
    path = folder / "solve-000-result.ckpt"
    path.write_bytes(path.read_bytes()[:-1])
    with opened(folder) as checkpoints:
        with pytest.warns(GraphWarning, match="the one before"):
            assert checkpoints.result(0) is None
        assert checkpoints.state(0)[1][0]["number"] == 2


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 1}, "was written for seed 0, this run has seed 1; take another folder"),
        ({"graph": "b", "seed": 1}, "was written for another graph than this run has"),
        ({"spectrograd": "9.0"}, "was written for spectrograd 0.1.0, this run has spectrograd 9.0"),
        ({"more": [1]}, r"was written for more None, this run has more \[1\]"),
    ],
)
def test_another_run_is_refused_by_name(folder, other, message):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(CheckpointError, match=message), opened(folder, **other):
        pass
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_nothing_of_somebody_else_is_touched(folder):
    others = ["notes.txt", "solve-1-state-2.ckpt", ".solve-000-state-000009.ckpt.12345678.tmp.bak"]
    for name in others:
        (folder / name).write_text("mine")
    draft = folder / ".solve-000-state-000009.ckpt.0a1b2c3d.tmp"
    draft.write_text("left by a run that was killed")
    with opened(folder) as checkpoints:
        checkpoints.save_state(0, kept(4))
    assert not draft.exists()
    assert all((folder / name).read_text() == "mine" for name in others)
    assert sorted(os.listdir(folder.parent)) == ["run"]


def test_a_second_run_in_the_same_folder_is_refused(folder):
    with opened(folder), ThreadPoolExecutor(1) as another:
        refused = another.submit(newest, folder).exception()
    assert isinstance(refused, GraphError)
    assert f"process {os.getpid()} is writing it" in str(refused)


def test_folders_that_are_none(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="file: this is no folder"), opened(tmp_path / "file"):
        pass
    with pytest.raises(CheckpointError, match="no such folder; create it first"):  # noqa: SIM117
        with opened(tmp_path / "not" / "there"):
            pass


def test_a_full_disk_leaves_what_was_there(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        with opened(disk / "run") as checkpoints:
            checkpoints.save_state(0, kept(7))
            with pytest.raises(OSError, match="the disk is full; earlier checkpoints are") as told:
                checkpoints.save_state(0, lambda sink: sink.add(np.zeros(100_000)))
            assert told.value.filename == str(disk / "run" / "solve-000-state-000002.ckpt")
        assert os.listdir(disk / "run") == ["solve-000-state-000001.ckpt"]
        assert newest(disk / "run") == (7, 7.0)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
