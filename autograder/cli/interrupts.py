"""Ctrl-C, once: people press it again while brokers and processes are still being put away.

A second `KeyboardInterrupt` would hit whatever is cleaning up, leave things behind and print
tracebacks. So SIGINT is blocked, a thread takes each one from the queue, and hands only the first
to the main thread, to whatever handler is in force there (asyncio has one of its own).
"""

from __future__ import annotations

import _thread
import contextlib
import signal
import threading
from collections.abc import Iterator

_NUDGE = signal.SIGURG  # ignored by default: it only ends a system call that waits


@contextlib.contextmanager
def first_only() -> Iterator[None]:
    """Let one SIGINT through inside the block. Nothing changes where SIGINT is ignored already.

    After one has come SIGINT stays blocked: what is left of the process is its end.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main or signal.getsignal(signal.SIGINT) in {
        signal.SIG_IGN,
        None,
    }:
        yield
        return
    closing, heard = threading.Event(), threading.Event()

    def listen() -> None:
        while True:
            signal.sigwait({signal.SIGINT})
            if closing.is_set():
                return
            if not heard.is_set():
                heard.set()
                _thread.interrupt_main(signal.SIGINT)
                signal.pthread_kill(main.ident or 0, _NUDGE)

    nudged = signal.signal(_NUDGE, lambda *_: None)
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    listener = threading.Thread(target=listen, name="ctrl-c", daemon=True)
    listener.start()
    try:
        yield
    finally:
        closing.set()
        signal.pthread_kill(listener.ident or 0, signal.SIGINT)
        listener.join()
        if not heard.is_set():
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        signal.signal(_NUDGE, nudged)
