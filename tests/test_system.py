"""How much memory there is, as far as the system reports it."""

from __future__ import annotations

import os

import pytest

from spectrograd import system as memory


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine of 16 GB and a file for the container's limit."""
    answers = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 4_000_000}
    monkeypatch.setattr(os, "sysconf", answers.__getitem__, raising=False)
    return tmp_path / "limit"


def test_the_machine_s(machine):
    assert memory.machine_memory((str(machine) + ".absent", str(machine))) == 4096 * 4_000_000


@pytest.mark.parametrize(
    ("limit", "expected"), [("max\n", 16.384e9), ("2000000000\n", 2e9), (str(2**62), 16.384e9)]
)
def test_the_container_s(machine, limit, expected):
    machine.write_text(limit)
    assert memory.machine_memory((str(machine) + ".absent", str(machine))) == expected


def test_a_system_that_does_not_report_it(machine, monkeypatch):
    monkeypatch.delattr(os, "sysconf")
    assert memory.machine_memory((str(machine) + ".absent", str(machine))) == memory.UNKNOWN_MACHINE_BYTES
