"""A small server for the built site, on this machine only."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.pages.errors import PagesError

#: Only this machine reaches it.
HOST = "127.0.0.1"

#: Port that is tried first, and how many after it.
PORT, PORTS = 8080, 20


class Handler(SimpleHTTPRequestHandler):
    """Serves files; keeps nothing in the browser, so that a rebuilt site shows at once."""

    def end_headers(self) -> None:
        """Add the site's headers."""
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing of a request."""


class Server(ThreadingHTTPServer):
    """The server; it never waits for a browser that keeps its connection."""

    daemon_threads = True


def server(site: Path, port: int | None = None) -> Server:
    """Give a server of the site, on the first free port or on the one that is asked for.

    Raises
    ------
    PagesError
        There is no site, or no free port.
    """
    if not (site / "index.html").is_file():
        raise PagesError(f"there is no site in {site}; build it with `make pages`")
    handler = partial(Handler, directory=str(site))
    ports = range(PORT, PORT + PORTS) if port is None else (port,)
    for number in ports:
        try:
            return Server((HOST, number), handler)
        except (OSError, OverflowError) as error:  # taken, forbidden, or no port's number
            refused: Exception = error
    raise PagesError(f"no port from {ports[0]} to {ports[-1]} is free: {refused}; name one: --port")


def serve(site: Path, port: int | None = None) -> None:
    """Serve the site until the user stops it."""
    with server(site, port) as found:
        print(f"http://{HOST}:{found.server_port}/ (Ctrl-C stops it)", flush=True)
        try:
            found.serve_forever()
        except KeyboardInterrupt:
            print()
