"""Dask workers in network namespaces of their own: another machine, as far as the network is concerned."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

NET = "10.213.87"  # of the bridge that joins the namespaces; nobody else's, one hopes


def why_not() -> str | None:
    """What keeps this machine from making namespaces; None where nothing does."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command 'ip'"
    tried = subprocess.run(["ip", "netns", "add", _name("try")], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"no network namespaces here: {tried.stderr.strip()}"
    _run("ip", "netns", "del", _name("try"))
    return None


@contextmanager
def client_of_namespaces(n_workers: int, rate: str | None = None) -> Iterator[Any]:
    """A client of so many workers of one thread, each in a namespace; ``rate`` is what each may send.

    The rate is one of ``tc``, such as ``"1gbit"``.
    """
    from distributed import Client, LocalCluster

    with ExitStack() as stack:
        bridge = _name("br")
        _run("ip", "link", "add", bridge, "type", "bridge")
        stack.callback(_run, "ip", "link", "del", bridge)
        _run("ip", "addr", "add", f"{NET}.1/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        how = {"host": f"{NET}.1", "dashboard_address": None}
        scheduler = stack.enter_context(LocalCluster(n_workers=0, threads_per_worker=1, **how))
        for i in range(n_workers):
            _join(stack, bridge, i, rate)
            worker = [*("ip", "netns", "exec", _name(i)), sys.executable, "-m", "distributed.cli.dask_worker"]
            options = ["--nthreads", "1", "--no-dashboard", "--no-nanny", "--host", f"{NET}.{i + 2}"]
            process = subprocess.Popen(
                [*worker, scheduler.scheduler_address, *options], stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait, 20)
            stack.callback(process.terminate)
        client = stack.enter_context(Client(scheduler, set_as_default=False))
        client.wait_for_workers(n_workers, timeout=60)
        yield client


def _join(stack: ExitStack, bridge: str, i: int, rate: str | None) -> None:
    """A namespace, with a cable from it to the bridge."""
    space, here, there = _name(i), _name(f"a{i}"), _name(f"b{i}")
    _run("ip", "netns", "add", space)
    stack.callback(_run, "ip", "netns", "del", space)
    _run("ip", "link", "add", here, "type", "veth", "peer", "name", there)
    _run("ip", "link", "set", here, "master", bridge, "up")
    _run("ip", "link", "set", there, "netns", space)
    inside = ("ip", "-n", space)
    _run(*inside, "addr", "add", f"{NET}.{i + 2}/24", "dev", there)
    _run(*inside, "link", "set", there, "up")
    _run(*inside, "link", "set", "lo", "up")
    if rate is not None:
        limit = ("rate", rate, "burst", "1mb", "latency", "50ms")
        _run("ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", there, "root", "tbf", *limit)


def _name(what: int | str) -> str:
    """At most fifteen characters; two processes do not meet."""
    return f"sg{os.getpid() % 10**6}{what}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
