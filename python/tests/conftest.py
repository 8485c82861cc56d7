# SPDX-License-Identifier: BSD-3-Clause
"""Peers in processes of their own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

import rpma

PRELUDE = """
import os, sys, rpma
from rpma import Access
port = int(sys.argv[1])
peer = rpma.Peer("127.0.0.1")

def say(text):
    print(text, flush=True)

def hear():
    return sys.stdin.readline().strip()

def listen():
    listener = peer.listen("127.0.0.1", port)
    say("ready")
    return listener

def accept(**options):
    with listen() as listener:
        return listener.accept(**options)

def share():
    memory = peer.expose(4096, Access.READ | Access.WRITE | Access.VISIBLE)
    memory.view[:5] = b"hello"
    return memory, accept(offer=[memory])
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Other:
    """
    A process that runs a script behind the prelude.

    `say` and `hear` are lines to and from it.
    """

    def __init__(self, script: str) -> None:
        self.port = free_port()
        program = PRELUDE + textwrap.dedent(script)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.was_killed = False

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def kill(self) -> None:
        self.was_killed = True
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def connect(self, **options: object) -> rpma.Conn:
        return rpma.connect("127.0.0.1", self.port, timeout=20, **options)  # type: ignore[arg-type]

    def end(self) -> None:
        try:
            self.process.communicate(timeout=20)
            assert self.was_killed or self.process.returncode == 0
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def other() -> Iterator[Callable[[str], Other]]:
    """Starts a process, which must end by itself and well unless the test kills it."""
    started: list[Other] = []

    def start(script: str) -> Other:
        process = Other(script)
        started.append(process)
        if any(call in script for call in ("listen()", "accept(", "share()")):
            assert process.hear() == "ready"
        return process

    yield start
    for process in started:
        process.end()


@pytest.fixture
def share(other: Callable[[str], Other]) -> Other:
    """A process that shares 4096 bytes, which begin with "hello", with one connection."""
    return other(
        """
    memory, conn = share()
    conn.wait_closed()
    """
    )


@pytest.fixture
def conn(share: Other) -> Iterator[rpma.Conn]:
    """The connection to it."""
    with share.connect() as conn:
        yield conn
