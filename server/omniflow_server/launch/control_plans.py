"""The settings of each control plane of a flow: those of the operator, told apart by ordinal. Pure.

control.listen 127.0.0.1:7700   ──▶   control-0   127.0.0.1:7700   <runtime>/control.sock
                                      control-1   127.0.0.1:7701   <runtime>/control-1.sock

One control plane alone is named "control" and keeps every setting as it is.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from omniflow.process import unix_target
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.settings import ControlSettings
from omniflow_server.launch.status import CONTROL

_UNIX = ("unix:", "unix-abstract:")
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlan:
    """One control-plane process: its name, its settings and where they are handed over."""

    name: str
    settings: ControlSettings
    settings_file: Path


def plan_control_planes(settings: ControlSettings, count: int, runtime: Path) -> tuple[ControlPlan, ...]:
    """The control planes of a flow. Raises OmniFlowError INVALID_CONFIG when there are not so many ports, or the runtime
    folder's path is too long for sockets."""
    plans = tuple(_plan(settings, ordinal, count, runtime) for ordinal in range(count))
    _check_targets([target for plan in plans for target in (plan.settings.listen, plan.settings.internal_listen)])
    return plans


def target_beside(target: str, ordinal: int) -> str:
    """The target of a further control plane: `ordinal` ports on, or a socket named by it. Port 0 stays 0: each process is
    given a free one. Raises OmniFlowError INVALID_CONFIG past the last port."""
    if not target or ordinal == 0:
        return target
    if target.startswith(_UNIX):
        stem, dot, suffix = target.rpartition(".")
        return f"{stem}-{ordinal}.{suffix}" if dot and "/" not in suffix else f"{target}-{ordinal}"
    host, separator, port = target.rpartition(":")
    if not separator or not port.isdigit() or port == "0":
        return target  # what is no address is refused where it is resolved
    if int(port) + ordinal > _MAX_PORT:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"there is no port {ordinal} after {target}; choose a smaller one")
    return f"{host}:{int(port) + ordinal}"


def _check_targets(targets: list[str]) -> None:
    named = [target for target in targets if not target.endswith(":0")]
    twice = next((target for target in named if named.count(target) > 1), None)
    if twice is not None:
        raise OmniFlowError(
            Reason.INVALID_CONFIG,
            f"two servers would listen on {twice}: each control plane takes the next port after control.listen and "
            "control.internal_listen; set them further apart",
        )


def _plan(settings: ControlSettings, ordinal: int, count: int, runtime: Path) -> ControlPlan:
    name = CONTROL if count == 1 else f"{CONTROL}-{ordinal}"
    own_socket = unix_target(runtime / (f"{CONTROL}-{ordinal}.sock" if ordinal else f"{CONTROL}.sock"))
    internal = target_beside(settings.internal_listen, ordinal) or own_socket
    own = dataclasses.replace(
        settings,
        listen=target_beside(settings.listen, ordinal),
        internal_listen=internal,
        advertise=target_beside(settings.advertise, ordinal),
        control_id=settings.control_id if count == 1 else f"{settings.control_id.removesuffix('-0')}-{ordinal}",
    )
    return ControlPlan(name=name, settings=own, settings_file=runtime / f"{name}.json")
