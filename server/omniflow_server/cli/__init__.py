"""The `omniflow` command."""

from __future__ import annotations

import os


def main() -> None:
    """Runs the command line and ends the process: 0 done, 1 failed, 2 used or configured wrongly, 130 interrupted."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # a connection that ends is no news for whoever reads our output
    from omniflow_server.cli.app import run  # here, so that importing the package stays free of typer

    run()


__all__ = ["main"]
