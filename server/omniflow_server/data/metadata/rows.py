"""How rows are written in the store: the format's revision, a small JSON object, and a payload that nobody looks into.

    1 {"registrar": 17}⏎<payload>

A row of a format that this version does not know is read as None. What scripts look at is not in the row: it lies beside it,
under names that would change with its form.
"""

from __future__ import annotations

import json
from typing import Any

from omniflow_server.data.metadata.port import ROW_FORMAT, GraphRow, Owner, ReplicaName, ReplicaRow, RequestRow

_FORMAT = b"%d " % ROW_FORMAT


def row_of_owner(owner: Owner) -> bytes:
    return _framed(
        {
            "owner_id": owner.owner_id,
            "incarnation_id": owner.incarnation_id,
            "endpoint": owner.endpoint,
            "protocol_revisions": owner.protocol_revisions,
        }
    )


def owner_of(epoch: bytes, draining: bytes, row: bytes) -> Owner | None:
    if (parts := _unframed(row)) is None:
        return None
    head, _ = parts
    return Owner(
        owner_id=head["owner_id"],
        incarnation_id=head["incarnation_id"],
        endpoint=head["endpoint"],
        epoch=int(epoch),
        is_draining=draining == b"1",
        protocol_revisions=tuple(head["protocol_revisions"]),
    )


def row_of_replica(row: ReplicaRow) -> bytes:
    return _framed({"registrar": row.registrar}, row.payload)


def replica_of(
    name: bytes, lease_id: bytes, state: bytes, load: bytes, drain: bytes, incarnation: bytes, row: bytes
) -> ReplicaRow | None:
    if (parts := _unframed(row)) is None:
        return None
    head, payload = parts
    role, replica_id = replica_name_of(name)
    return ReplicaRow(
        role=role,
        replica_id=replica_id,
        incarnation_id=incarnation.decode(),
        payload=payload,
        lease_id=lease_id.decode(),
        state=int(state),
        load=load,
        drain_grace_s=float(drain) if drain else None,
        registrar=head["registrar"],
    )


def text_of_name(name: ReplicaName) -> bytes:
    """With the length of the role, so that no two names are alike."""
    return b"%d:%b%b" % (len(role := name[0].encode()), role, name[1].encode())


def replica_name_of(text: bytes) -> ReplicaName:
    size, _, rest = text.partition(b":")
    return rest[: int(size)].decode(), rest[int(size) :].decode()


def text_of_drain(grace_s: float | None) -> bytes:
    return b"" if grace_s is None else repr(float(grace_s)).encode()


def request_of(value: bytes) -> RequestRow:
    """Of a value that a script has made: epoch, length of the call id, call id and digest."""
    epoch, size, rest = value.split(b" ", 2)
    return RequestRow(call_id=rest[: int(size)].decode(), epoch=int(epoch), digest=rest[int(size) :])


def row_of_graph(row: GraphRow) -> bytes:
    return _framed({}, row.payload)


def graph_of(name: bytes, version: bytes, row: bytes) -> GraphRow | None:
    parts = _unframed(row)
    return None if parts is None else GraphRow(name=name.decode(), version=int(version), payload=parts[1])


def _framed(head: dict[str, Any], payload: bytes = b"") -> bytes:
    return b"%b%b\n%b" % (_FORMAT, json.dumps(head).encode(), payload)


def _unframed(row: bytes) -> tuple[dict[str, Any], bytes] | None:
    if not row.startswith(_FORMAT):
        return None
    head, _, payload = row[len(_FORMAT) :].partition(b"\n")
    return json.loads(head), payload
