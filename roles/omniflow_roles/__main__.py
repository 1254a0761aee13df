"""`python -m omniflow_roles`: run a role process, or list the interfaces that one could host."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

import uvloop

from omniflow import discovery
from omniflow.flow_loading import load_flow
from omniflow.links.port import LaneKind
from omniflow.process import PARENT_PID, RUNTIME_DIR, die_with_parent
from omniflow_core.errors import OmniFlowError
from omniflow_roles.harness.role_server import serve
from omniflow_roles.harness.settings import RoleSettings

_SERVE_HELP = f"""\
A role process hosts one or more interfaces and runs them for control planes. It listens first, registers as STARTING,
loads its interfaces one after another, and takes work when it is READY. `omniflow up` starts one per replica; by hand:

  python -m omniflow_roles list
  python -m omniflow_roles serve --role noop --replica-id noop-0 --interfaces noop.echo,noop.burst \\
      --registry unix:$XDG_RUNTIME_DIR/omniflow/default/control.sock

A target is unix:/path/to.sock or host:port; port 0 picks a free one. Sockets of the default folder are 0600; there is no
encryption, so a TCP address should be a loopback or a trusted network.

SIGTERM drains: no new work, what runs may end within --drain-grace, then exit status 0. A second SIGTERM ends at once.
A lost registry is dialled again for ever, while running work goes on. Exit status 1: an interface could not be set up;
2: a mistake on the command line.

environment:
  {RUNTIME_DIR}   folder of the default socket
  {PARENT_PID}    process id of a supervisor: this process is killed when that one dies
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=getattr(options, "log_level", "WARNING"), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        die_with_parent()
        return _list() if options.command == "list" else _serve(options)
    except OmniFlowError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _list() -> int:
    for name, point in sorted(discovery.registered().items()):
        sys.stdout.write(f"{name:24} {point.value}\n")
    return 0


def _serve(options: argparse.Namespace) -> int:
    names = [name for names in options.interfaces for name in names.split(",") if name]
    flows = [load_flow(reference) for reference in options.flow]
    interfaces = [discovery.load(name, flows)() for name in names]
    settings = RoleSettings(
        role=options.role,
        replica_id=options.replica_id or f"{options.role}-{os.getpid()}",
        listen=options.listen,
        advertise=options.advertise,
        lanes=options.lanes,
        registry=options.registry,
        max_activations=options.max_activations,
        drain_grace_s=options.drain_grace,
        value_budget_bytes=options.value_budget,
        node=options.node,
    )
    # A thread that computes keeps the interpreter for this long; the loop that sends its yields waits. The default of 5 ms
    # would be most of what the platform adds to a first token.
    sys.setswitchinterval(0.0005)
    status: int = uvloop.run(serve(settings, interfaces))
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m omniflow_roles", description="Role processes of Omni-Flow.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="list the interfaces that are registered in this environment")
    command = commands.add_parser(
        "serve",
        help="host interfaces for control planes",
        description="Host interfaces for control planes.",
        epilog=_SERVE_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = command.add_argument
    add("--role", required=True, help="role that graphs name, such as llm")
    add("--replica-id", default="", help="unique in the role and kept across restarts (default: role and process id)")
    add("--interfaces", required=True, action="append", help="registered names, separated by commas; repeatable")
    add("--flow", default=[], action="append", metavar="FILE.py", help="flow file that defines interfaces; repeatable")
    add("--registry", default="", metavar="TARGET[,…]", help="control planes to register with, in turn (default: none)")
    add(
        "--listen",
        default="",
        metavar="TARGET",
        help="where to serve (default: a unix socket in the runtime directory)",
    )
    add(
        "--advertise",
        default="",
        metavar="TARGET",
        help="where others reach this process (default: what it listens on)",
    )
    add(
        "--lanes",
        type=_lanes,
        default=LaneKind.UNIX_FRAMES.value,
        metavar="KINDS",
        help="lanes for control planes and replicas of this host, and to reach replicas by, separated by commas: "
        "unix-frames, zmq-ipc, or an empty text for none (default unix-frames)",
    )
    add(
        "--max-activations",
        type=int,
        default=256,
        metavar="N",
        help="running and waiting, more are refused (default 256)",
    )
    add(
        "--drain-grace", type=float, default=30.0, metavar="SECONDS", help="for running work after SIGTERM (default 30)"
    )
    add("--value-budget", type=int, default=4 << 30, metavar="BYTES", help="for values over 64 KiB (default 4 GiB)")
    add("--node", default="", help="name of this machine (default: its host name)")
    add("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"), help="default INFO")
    return parser


def _lanes(text: str) -> tuple[LaneKind, ...]:
    try:
        return tuple(LaneKind(name.strip()) for name in text.split(",") if name.strip())
    except ValueError:
        known = ", ".join(kind.value for kind in LaneKind)
        raise argparse.ArgumentTypeError(f"{text!r} names a lane that there is not; there are {known}") from None


if __name__ == "__main__":
    sys.exit(main())
