"""``.mat`` files that are not what they state are refused before scipy's compiled reader sees them."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from spectrograd import GraphError, read_graph
from spectrograd.io.mat_structure import checked

VARIABLES = {
    "A": np.eye(5),
    "S": sp.csc_array(np.eye(4)),
    "none": np.empty((0, 3)),
    "text": "abc",
    "complex": np.ones((2, 2)) * 1j,
    "cells": np.array([np.ones(2), np.array(["a"], object)], dtype=object),
    "fields": {"a": 1, "b": np.arange(3)},
    "flags": np.array([[True, False]]),
}


def content(packed, **variables):
    target = io.BytesIO()
    scipy.io.savemat(target, variables or VARIABLES, do_compression=packed)
    return target.getvalue()


@pytest.mark.parametrize("packed", [False, True])
def test_good_files_stay_and_are_unpacked(packed):
    plain = content(False)
    assert checked(content(packed))[128:] == plain[128:]
    found = scipy.io.loadmat(io.BytesIO(checked(content(packed))))
    assert set(VARIABLES) <= set(found)


def test_files_of_version_4_are_left_alone():
    target = io.BytesIO()
    scipy.io.savemat(target, {"A": np.eye(3)}, format="4")
    assert checked(target.getvalue()) == target.getvalue()


def packed_element(data, claimed=None):
    body = bytearray(data)
    if claimed is not None:
        body[4:8] = claimed.to_bytes(4, "little")
    body = zlib.compress(bytes(body))
    return (15).to_bytes(4, "little") + len(body).to_bytes(4, "little") + body


@pytest.mark.parametrize("claimed", [2**31, 8, 100])
def test_a_packed_variable_of_another_length_is_refused(tmp_path, claimed):
    plain = content(False, A=np.eye(5))
    (tmp_path / "a.mat").write_bytes(plain[:128] + packed_element(plain[128:], claimed))
    with pytest.raises(GraphError, match=r"a\.mat: not a \.mat file that can be read"):
        read_graph(tmp_path / "a.mat")


def test_a_damaged_packed_variable_is_refused(tmp_path):
    data = bytearray(content(True, A=sp.csc_array(np.eye(20))))
    data[-2] ^= 1  # in the check sum behind the data
    (tmp_path / "a.mat").write_bytes(data)
    with pytest.raises(GraphError, match="a packed variable is damaged"):
        read_graph(tmp_path / "a.mat")


@pytest.mark.parametrize("at", range(128, 128 + 72, 4))
def test_wrong_numbers_in_the_tags_are_refused_or_harmless(at):
    data = bytearray(content(False, A=np.eye(5)))
    data[at : at + 4] = (2**31 - 1).to_bytes(4, "little")
    try:
        checked(bytes(data))
    except ValueError:
        return
    scipy.io.loadmat(io.BytesIO(bytes(data)))


def test_dimensions_and_values_fit():
    data = bytearray(content(False, A=np.eye(5)))
    at = data.index((5).to_bytes(4, "little") * 2, 150)  # 5 rows, 5 columns
    data[at : at + 4] = (6).to_bytes(4, "little")
    with pytest.raises(ValueError, match=r"dimensions \(6, 5\) holds more or fewer values"):
        checked(bytes(data))
