# SPDX-License-Identifier: BSD-3-Clause
"""Waiting for what a descriptor reports, by threads and by event loops."""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from abc import abstractmethod
from collections import deque
from types import TracebackType
from typing import Any

from ._c import OfProcess


def deadline_of(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


class Event:
    """Something that happens once."""

    __slots__ = ("is_done", "futures")

    def __init__(self) -> None:
        self.is_done = False
        self.futures: list[asyncio.Future[None]] = []


class Ready:
    """A descriptor that is readable if one of several is, or once `wake` was called, until `rest`."""

    def __init__(self, *fds: int) -> None:
        self.epoll = select.epoll()
        self.waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        for fd in (*fds, self.waker):
            self.epoll.register(fd, select.EPOLLIN)
        self._is_awake = self._is_over = False
        self._copy: int | None = None

    def copy(self) -> int:
        """A descriptor for loops of the program, which may watch it along with those of this package."""
        if self._copy is None:
            self._copy = os.dup(self.epoll.fileno())
        return self._copy

    def wake(self) -> None:
        self._is_awake = True
        os.eventfd_write(self.waker, 1)

    def end(self) -> None:
        """`wake`, for ever."""
        self._is_over = True
        self.wake()

    def rest(self) -> None:
        if self._is_awake and not self._is_over:
            self._is_awake = False
            os.eventfd_read(self.waker)

    def __del__(self, close=os.close) -> None:  # type: ignore[no-untyped-def]
        for each in getattr(self, "waker", None), getattr(self, "_copy", None):
            if each is not None:
                close(each)


class Lock(threading.Condition):
    """A lock that is not held when `dropped`, memory of the program, is freed: its finalizer may take it."""

    def __init__(self) -> None:
        super().__init__(threading.Lock())
        self.dropped: list[Any] = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Freed when this function has returned. An exception of a signal handler may come after each call: so
        # there is none before the lock is released.
        dropped, self.dropped = self.dropped, []  # noqa: F841
        self.release()

    def free(self) -> None:
        """With the lock, which is not held meanwhile."""
        while self.dropped:
            try:
                self.__exit__(None, None, None)
            finally:
                self.acquire()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Waiting(OfProcess):
    """
    Drives an object whose descriptors may be waited on by several threads and event loops at once.

    One of the waiting threads waits on the descriptors, the others until it has driven the object. Whoever
    else drives it, and so takes what the descriptors report, wakes that thread if its event is finished.
    Event loops watch the descriptors as long as one of their tasks waits. `lock` is held by every call of
    the library for the object.
    """

    def __init__(self, *fds: int) -> None:
        super().__init__()
        self.lock = Lock()
        self.ready = Ready(*fds)
        self._led: Event | None = None  # what the thread waits for that waits on the descriptors
        self._watching: dict[asyncio.AbstractEventLoop, int] = {}
        self._abandoned: deque[asyncio.AbstractEventLoop] = deque()  # one for each task that is gone

    @abstractmethod
    def drive(self) -> None:
        """Takes what the descriptors report; with the lock."""

    def finish(self, event: Event) -> None:
        """With the lock."""
        event.is_done = True
        futures, event.futures = event.futures, []
        for future in futures:
            loop = future.get_loop()
            if asyncio._get_running_loop() is loop:
                _resolve(future)
                continue
            try:
                loop.call_soon_threadsafe(_resolve, future)
            except RuntimeError:
                pass  # the loop is closed, and its tasks with it
        self.lock.notify_all()
        if event is self._led:
            self.ready.wake()

    def wait(self, event: Event, deadline: float | None) -> bool:
        """Whether the event has happened before the deadline."""
        with self.lock:
            if not event.is_done:
                self.drive()
            while not event.is_done:
                if self.lock.dropped:
                    self.lock.free()
                    continue
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                if self._led is not None:
                    self.lock.wait(left)
                else:
                    self._lead(event, left)
            return True

    def _lead(self, event: Event, left: float | None) -> None:
        try:
            self._led = event
            self.lock.release()
            try:
                self.ready.epoll.poll(left)
            finally:
                self.lock.acquire()
            self._led = None
            if not event.is_done:
                self.drive()
        finally:
            self._led = None
            self.ready.rest()
            self.lock.notify_all()

    async def wait_async(self, event: Event) -> None:
        """Returns when the event has happened."""
        loop = asyncio.get_running_loop()
        with self.lock:
            if not event.is_done:
                self.drive()
            if event.is_done:
                return
            future: asyncio.Future[None] = loop.create_future()
            event.futures.append(future)
            self._watch(loop)
        try:
            await future
        except GeneratorExit:
            # Perhaps by the garbage collector, in a thread that has the lock.
            self._abandoned.append(loop)
            raise
        except BaseException:
            self._leave(loop, event, future)
            raise
        self._leave(loop, event, future)

    def fileno(self) -> int:
        """A descriptor that is readable when there is something to take."""
        with self.lock:
            return self.ready.copy()

    def _leave(self, loop: asyncio.AbstractEventLoop, event: Event, future: asyncio.Future[None]) -> None:
        with self.lock:
            if future in event.futures:
                event.futures.remove(future)
            self._unwatch(loop)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        count = self._watching.get(loop, 0)
        if count == 0:
            for closed in [each for each in self._watching if each.is_closed()]:
                del self._watching[closed]
                for _ in range(self._abandoned.count(closed)):
                    self._abandoned.remove(closed)
            loop.add_reader(self.ready.epoll.fileno(), self._on_readable)
        self._watching[loop] = count + 1

    def _unwatch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watching[loop] -= 1
        if self._watching[loop] == 0:
            del self._watching[loop]
            loop.remove_reader(self.ready.epoll.fileno())

    def _on_readable(self) -> None:
        loop = asyncio.get_running_loop()
        with self.lock:
            self.drive()
            for _ in range(self._abandoned.count(loop)):
                self._abandoned.remove(loop)
                self._unwatch(loop)
