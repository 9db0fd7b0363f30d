"""How a message's id, key and headers travel where a broker has no place of its own for them.

NATS headers are lines of text: the client trims values and turns line breaks into spaces. Values
therefore travel percent-encoded, so that any text comes back as it was. Header *names* must be
printable ASCII without separators, as in HTTP.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

ID_HEADER = "Ackademy-Id"
KEY_HEADER = "Ackademy-Key"


def as_header(text: str) -> str:
    """Any text as a header value that survives the wire, half a surrogate pair included."""
    return quote(text, safe="", errors="surrogatepass")


def from_header(value: str) -> str:
    """The text behind `as_header`; a foreign producer's plain value comes back as it is."""
    return unquote(value, errors="surrogatepass") if "%" in value else value


def as_bytes(text: str) -> bytes:
    """Any text as bytes: a Kafka record's key or header value."""
    return text.encode("utf-8", "surrogatepass")


def from_bytes(value: bytes) -> str:
    """The text behind `as_bytes`. Bytes of a foreign producer that are no text are shown escaped."""
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return value.decode("utf-8", "backslashreplace")
