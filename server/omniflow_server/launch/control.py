"""The control-plane process of a supervisor: `python -m omniflow_server.launch.control SETTINGS.json`.

Separate from the `omniflow` command so that it starts fast and stays small: no command line, no terminal.
"""

from __future__ import annotations

import sys
from pathlib import Path

from omniflow.process import die_with_parent


def main() -> int:
    """Serves until SIGTERM. The exit status says whether starting again could help (2: it could not)."""
    die_with_parent()  # before the heavy imports: a supervisor that dies now must not leave us behind
    import uvloop

    from omniflow_core.errors import OmniFlowError, Reason
    from omniflow_server.compose import serve
    from omniflow_server.config import parse_json
    from omniflow_server.control.settings import ControlSettings
    from omniflow_server.launch.restarts import USAGE_STATUS

    path = Path(sys.argv[1])
    try:
        settings = parse_json(ControlSettings, path.read_text(encoding="utf-8"), source=str(path))
        uvloop.run(serve(settings))
    except OmniFlowError as problem:
        sys.stderr.write(f"error: {problem}\n")
        hopeless = {Reason.INVALID_CONFIG, Reason.INVALID_GRAPH, Reason.UNKNOWN_INTERFACE}
        return USAGE_STATUS if problem.reason in hopeless else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
