"""What all outputs share: copies under way, waited for once, safe to drop.

An output enqueues copies of everything that its sources hold, then one event. Whoever
asks first waits, converts and fills in; everybody gets the same outcome.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Generator
from functools import partial
from threading import Lock
from typing import Any

import torch

from asyncout import inflight
from asyncout.checks import MAX_NAMED_REQUESTS
from asyncout.copy_path import CopyPath, Then
from asyncout.errors import DeviceMismatchError, GraphCaptureError, OutputTimeoutError
from asyncout.events import wait_until
from asyncout.outputs import AsyncModelRunnerOutput, KVConnectorOutput, ModelRunnerOutput
from asyncout.runtime import Event
from asyncout.transfer import Landing
from asyncout.tree import named_tensors
from asyncout.worker import Handover


class PendingOutput(AsyncModelRunnerOutput):
    """A model runner output whose copies are under way."""

    # What a constructor sets first; itself, as a call of super() costs a cold one a tenth.
    _model_runner_output: ModelRunnerOutput
    _path: CopyPath
    _lock: Lock

    # Read by __del__, also when construction failed.
    _event: Event | None = None
    _kept: Any = None
    _handed_over: Handover | None = None
    _has_arrived = False
    _outcome_is_known = False
    _error: Exception | None = None

    # --- enqueue ---------------------------------------------------------------------------

    def _enqueue(
        self, sources: dict[Any, Any], tensors: list[torch.Tensor], then: Then | None = None
    ) -> None:
        """Enqueue the copies of `tensors`, then one event; or have the path's worker do so.

        Parameters
        ----------
        sources : dict
            What `tensors` come from, under the names that errors show.
        tensors : list of torch.Tensor
            What is copied; a landing has them in this order.
        then : callable, optional
            Called on the copy stream behind the copies, with their landing, to enqueue
            others before the event. Kept alive with them.
        """
        path = self._path
        if path.is_capturing():
            _refuse_capture()
        if path.may_mismatch:
            _check_devices(path, sources, tensors)
        if inflight.kept:
            inflight.release_passed()
        if path.worker is not None:
            # The worker comes later, and the caller may write to its host tensors at once.
            tensors = [tensor.clone() if tensor.is_cpu else tensor for tensor in tensors]
        landing = path.prepare(tensors)
        # Another stream reads the sources: without a reference the allocator would
        # give their memory to the main stream's next kernel.
        self._kept = (sources, landing, then)
        if path.worker is None:
            self._submit(tensors, landing, then)
        else:
            self._handed_over = Handover()
            path.worker.run(partial(self._submit_aside, path.mark_main(), tensors, landing, then))

    def _submit(self, tensors: list[torch.Tensor], landing: Landing, then: Then | None) -> None:
        path = self._path
        try:
            self._event = path.enqueue(landing, then)
        except BaseException:
            self._leave_behind()
            raise
        if not path.memory_is_known:
            path.look_at_memory(tensors, landing)

    def _submit_aside(
        self,
        marker: Event,
        tensors: list[torch.Tensor],
        landing: Landing,
        then: Then | None,
        error: BaseException | None,
    ) -> None:
        """Do the same in the worker, behind the main stream's work at construction."""
        assert self._handed_over is not None
        if error is None:
            try:
                self._path.follow(marker)
                self._submit(tensors, landing, then)
            except BaseException as caught:  # whatever it is: a reader waits for it
                error = caught
        self._handed_over.settle(error)

    def _leave_behind(self) -> None:
        """Keep what the copies of a failed construction touch until they are done."""
        path, touched = self._path, self._kept
        if touched is None:
            return  # nothing was enqueued
        try:
            inflight.keep_until(path.record(), touched, path.recycle)
        except Exception:
            # No event to be had. The one wait in a constructor, and only on this path:
            # returning would free memory under a running copy.
            try:
                path.stream.synchronize()
            except Exception:
                # The device is lost; its copies will not run. The first error tells why.
                inflight.keep_forever(touched)

    def __del__(self) -> None:
        if self._kept is not None and self._event is not None:
            inflight.keep_until(self._event, self._kept, self._path.recycle)

    # --- wait ------------------------------------------------------------------------------

    def get_output(self, timeout: float | None = None) -> ModelRunnerOutput:
        """Wait for the copies, fill in the model runner output and return it.

        The work is done once; later calls, from any thread, give the same object
        or raise the same error.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most, also for another thread that is waiting already.

        Returns
        -------
        ModelRunnerOutput
            The object given at construction.

        Raises
        ------
        OutputTimeoutError
            The copies had not arrived in time. The output can still be read later.
        """
        if timeout is not None and not self._outcome_is_known:
            self._wait_at_most(timeout)
        with self._lock:
            if not self._outcome_is_known:
                try:
                    self._finish()
                except Exception as error:
                    self._error = error
                # An interrupt (KeyboardInterrupt) is no outcome: the next call starts again.
                self._outcome_is_known = True
                if self._has_arrived:
                    self._let_go()
        if self._error is not None:
            # Without the traceback of earlier calls, which would grow with each.
            raise self._error.with_traceback(None)
        return self._model_runner_output

    def ready(self) -> bool:
        """Whether :meth:`get_output` would not have to wait for the device."""
        if self._handed_over is not None and not self._handed_over.is_settled():
            return False
        event = self._event
        if event is None:
            return True
        try:
            # Looked at again: another thread's wait may have given the event away meanwhile.
            return event.query() or self._event is None
        except Exception:
            return True  # a lost device: get_output raises its error at once

    def __await__(self) -> Generator[Any, None, ModelRunnerOutput]:
        """Wait in asyncio: a thread of the loop's executor waits as the policy says.

        The loop runs on meanwhile. Nothing polls, so the result is no later than that
        thread's wake-up and its hand-over.
        """
        if self._outcome_is_known:
            return self.get_output()
        loop = asyncio.get_running_loop()
        return (yield from loop.run_in_executor(None, self.get_output).__await__())

    @abstractmethod
    def _finish(self) -> None:
        """Wait, convert and fill in the model runner output."""

    def _wait_at_most(self, timeout: float) -> None:
        """Return when the copies have arrived, or raise after `timeout` seconds."""
        runtime = self._path.runtime
        if wait_until(runtime, self.ready, runtime.clock() + timeout):
            return
        kept = self._kept
        if kept is None:  # another reader was done in this moment
            return
        requests = self._model_runner_output.req_ids
        named = ", ".join(requests[:MAX_NAMED_REQUESTS])
        more = len(requests) - MAX_NAMED_REQUESTS
        fields = sorted({name.split("[")[0] for name, _ in named_tensors(kept[0])})
        raise OutputTimeoutError(
            f"the results of {len(requests)} requests ({named}"
            + (f" and {more} more" if more > 0 else "")
            + f") had not arrived after {timeout:g} s; waiting for {', '.join(fields)}. The device "
            "is late or hangs; get_output() may be called again"
        )

    def _landing(self) -> Landing:
        """Give where the copies land; read there only after :meth:`_wait`.

        Making views of it takes time, which is free until the copies have arrived.
        """
        if self._handed_over is not None:
            self._handed_over.wait()  # the worker makes room one by one, or meets an error
        landing: Landing = self._kept[1]
        return landing

    def _wait(self) -> None:
        """Return when every copy has arrived."""
        assert self._event is not None
        self._path.wait(self._event)
        self._has_arrived = True

    def _let_go(self) -> None:
        """Let go of the sources and of the event: nobody waits for it any more."""
        event = self._event
        assert event is not None
        self._event = None
        self._kept = None
        self._path.recycle(event)

    # --- beside the wait -------------------------------------------------------------------

    @property
    def memory(self) -> str:
        """Kind of host memory that was really obtained: "pinned" or "pageable"."""
        return self._path.memory

    def make_stream_wait(self, stream: Any = None) -> None:
        """Make later work of a stream wait until the copies have read their sources.

        Needed before that work writes to the same tensors in place, as the replay
        of a CUDA graph does. Freeing the tensors needs nothing. Under ``submit="thread"``
        the call waits until the worker has enqueued the copies.

        Parameters
        ----------
        stream : torch.cuda.Stream, optional
            Default: the main stream. The host does not wait.
        """
        if self._handed_over is not None:
            self._handed_over.wait()  # not for the device, but for the copies to be enqueued
        event, path = self._event, self._path
        if event is not None:
            target = path.main_stream if stream is None else path.runtime.as_stream(stream)
            event.wait(target)

    def get_kv_connector_output(self) -> KVConnectorOutput | None:
        """Give the KV connector's output at once; never waits, never raises."""
        return self._model_runner_output.kv_connector_output


def _refuse_capture() -> None:
    raise GraphCaptureError(
        "an output was constructed while a CUDA graph is being captured: its copies would "
        "become part of the graph and its event would never pass; construct it after the "
        "capture, behind each replay"
    )


def _check_devices(path: CopyPath, sources: Any, tensors: list[torch.Tensor]) -> None:
    device = path.device
    for tensor in tensors:
        if tensor.device != device and not tensor.is_cpu:
            names = [name for name, part in named_tensors(sources) if part is tensor]
            raise DeviceMismatchError(
                f"{names[0]} is on {tensor.device} and the streams are on {device}; use the "
                "streams of the device that computed it"
            )
