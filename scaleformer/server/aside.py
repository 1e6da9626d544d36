"""Work beside the event loop: in threads and processes, with limits, given up when its client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from anyio import BrokenWorkerProcess, CapacityLimiter, fail_after, to_process, to_thread
from fastapi import HTTPException, Request

from scaleformer.server.reading import MEMORY, limited

T = TypeVar("T")
READING = 60.0  # seconds to read or write prose
SMALL = 1 << 15  # bytes of prose that are read at once, beside the processes that read more


class Aside:
    """Reading competes with the translation for the processor, and small requests do not wait for large ones: two calls
    of each at a time."""

    def __init__(self) -> None:
        self._small, self._large = CapacityLimiter(2), CapacityLimiter(2)

    async def in_thread(self, call: Callable[[], T], size: int) -> T:
        """Run a call that reads so many characters in a thread, outside the event loop."""
        limiter = self._small if size <= SMALL else self._large
        return await to_thread.run_sync(call, limiter=limiter, abandon_on_cancel=True)

    async def apart(self, call: Callable[[], T], size: int) -> T:
        """Run a call that reads so many bytes of prose, in a process of its own if they are many. Raises HTTPException
        if it takes too long or too much memory."""
        try:
            with fail_after(READING):
                if size <= SMALL:
                    return await self.in_thread(call, size)
                return await to_process.run_sync(limited, call, cancellable=True, limiter=self._large)
        except TimeoutError:
            raise HTTPException(504, f"not read within {READING:g} s: send less at once") from None
        except (MemoryError, BrokenWorkerProcess):
            raise HTTPException(413, f"takes more than {MEMORY >> 30} GiB of memory to read: split it") from None


async def while_present(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of some work, which is given up when the client disconnects. Raises HTTPException then."""

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, gone = asyncio.create_task(work), asyncio.create_task(leave())
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise HTTPException(499, "the client has disconnected")
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)
