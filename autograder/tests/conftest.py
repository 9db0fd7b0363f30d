"""What holds for all tests of the package."""

from __future__ import annotations

import signal

# A shell that starts a command in the background has it ignore Ctrl-C, and so all that it starts.
# Tests that send one need to be heard.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
