"""Write the golden wire fixtures: one message each, in binary and in protobuf-JSON, plus an index of their types.

    python tests/vectors/write_vectors.py

They pin what travels: every client decodes the binary and must find what the JSON says. Old fixtures must stay
readable, so a field is added to a new fixture rather than to an old one, and a diff of an existing .binpb is a change
of the wire that the commit has to explain. The values are chosen for what tends to differ between languages: numbers
above 2^53, negative numbers, zeros that are present, text outside ASCII, maps, oneofs with an empty message, nested
Any.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from google.protobuf import duration_pb2, json_format, timestamp_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2, sampling_pb2
from omniflow.kv.v1 import (
    kv_directory_service_pb2,
    kv_layout_pb2,
    memory_region_pb2,
    page_pb2,
    transfer_service_pb2,
)
from omniflow.memory.v1 import global_pool_pb2, memory_session_service_pb2, tmp_buffer_pb2
from omniflow.role.v1 import role_execution_service_pb2
from omniflow.session.v1 import session_pb2
from omniflow.workflow.v1 import graph_spec_pb2

DATA = Path(__file__).parent / "data"
GUIDE = Path(__file__).parents[2] / "docs" / "graphs.md"
INDEX = DATA / "index.json"

# Above 2^53, where a reader that takes JSON numbers for floats goes wrong; JSON carries such numbers as strings.
LARGE = 2**53 + 1
LAYOUT_ID = "5f" * 32
MADE: dict[str, Callable[[], Message]] = {}


def vector(make: Callable[[], Message]) -> Callable[[], Message]:
    """Register a fixture under the name of its function."""
    MADE[make.__name__] = make
    return make


def text(value: str) -> value_pb2.Value:
    """A text value."""
    return value_pb2.Value(text=value)


def tensor(payload: tensor_pb2.Payload) -> value_pb2.Value:
    """A float32 tensor of two by two."""
    spec = tensor_pb2.TensorSpec(element_type=tensor_pb2.ELEMENT_TYPE_FLOAT32, shape=[2, 2])
    return value_pb2.Value(tensor=tensor_pb2.Tensor(spec=spec, payload=payload))


def buffer(block: str) -> tensor_pb2.BufferRef:
    """A region of a block, past its start."""
    return tensor_pb2.BufferRef(manager_id="node-a", block_id=block, epoch=7, offset_bytes=256, size_bytes=16)


def content_page(digit: int) -> page_pb2.PageId:
    """A content page whose id repeats one byte."""
    return page_pb2.PageId(content=bytes([digit]) * 32)


def node(name: str) -> page_pb2.NodeRef:
    """A node in its seventh epoch."""
    return page_pb2.NodeRef(node_id=name, epoch=7)


def a_status() -> status_pb2.Status:
    """An error with the three kinds of detail that clients read.

    The map has one entry only: an Any holds bytes, and a reader of the JSON packs a map in an order of its own.
    """
    status = status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message="too many calls")
    violation = error_details_pb2.BadRequest.FieldViolation(field="call.priority", description="too large")
    for detail in (
        error_details_pb2.ErrorInfo(reason="TOO_MANY_CALLS", domain="omniflow", metadata={"limit": "64"}),
        error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=1, nanos=500_000_000)),
        error_details_pb2.BadRequest(field_violations=[violation]),
    ):
        status.details.add().Pack(detail)
    return status


@vector
def graph_event_tokens() -> Message:
    """A token delta with text that is no ASCII and a sequence that is no float."""
    tokens = value_pb2.Tokens(ids=[0, 1, 49152, 2**32 - 1], text="né 流 🜁", logprobs=[-0.5, 0.0, -12.25, -0.125])
    return graph_event_pb2.GraphEvent(
        sequence=LARGE,
        node="llm",
        origin_path=[0, 3, 300],
        field="answer",
        call_key="a",
        value=value_pb2.Value(tokens=tokens),
    )


@vector
def graph_event_failed() -> Message:
    """A terminal failure."""
    usage = graph_event_pb2.Usage(input_tokens=12, output_tokens=3, activations=2)
    return graph_event_pb2.GraphEvent(sequence=9, failed=graph_event_pb2.CallFailed(status=a_status(), usage=usage))


@vector
def graph_event_finished() -> Message:
    """A terminal success that extended two histories."""
    histories = [
        graph_event_pb2.HistoryResult(field="thinker", boundary_tokens=600, prefill_tokens=24, history_tokens=700),
        graph_event_pb2.HistoryResult(field="talker", boundary_tokens=0, prefill_tokens=1, history_tokens=1),
    ]
    finished = graph_event_pb2.CallFinished(reason=graph_event_pb2.FINISH_REASON_LENGTH, histories=histories)
    return graph_event_pb2.GraphEvent(sequence=10, call_key="a", finished=finished)


@vector
def converse_frame() -> Message:
    """A client frame of three messages; sampling has zeros that are present."""
    sampling = sampling_pb2.SamplingParameters(
        temperature=0.0, top_k=0, seed=LARGE, max_tokens=16, stop=["\n\n"], logit_bias={7: -100.0, 300: 0.5, 2: 1.0}
    )
    image = value_pb2.Media(mime_type="image/png", payload=tensor_pb2.Payload(inline=b"\x89PNG\r\n\x1a\n"))
    call = graph_service_pb2.CallSpec(
        request_id="b9f6a1c0-6f0e-4c0f-9b58-3d9a5c1e7a10",
        session="sessions/s1",
        inputs={"prompt": text("three plus four"), "image": value_pb2.Value(image=image)},
        open_inputs=["audio"],
        history_step=0,
        supersede=True,
        heartbeat_interval=duration_pb2.Duration(seconds=2),
        sampling=sampling,
        priority=-5,
    )
    audio = value_pb2.Media(
        mime_type="audio/L16;rate=16000;channels=1",
        payload=tensor_pb2.Payload(chunked=tensor_pb2.ChunkedPayload(transfer_id=4, total_bytes=2**33)),
        timestamp=duration_pb2.Duration(nanos=20_000_000),
        is_partial=True,
    )
    message = graph_service_pb2.ConverseMessage
    return graph_service_pb2.ConverseCallRequest(
        messages=[
            message(call_key="a", start=graph_service_pb2.StartCall(graph="graphs/assistant", call=call)),
            message(
                call_key="a", input=graph_service_pb2.StreamInput(field="audio", value=value_pb2.Value(audio=audio))
            ),
            message(
                call_key="a",
                chunk=tensor_pb2.PayloadChunk(transfer_id=4, data=b"\x00\xff", crc32c=0xFFFFFFFF, last=True),
            ),
        ]
    )


@vector
def start_activation() -> Message:
    """An activation of a count join with two facets, a fence and a page binding."""
    role = role_execution_service_pb2
    facets = [
        role.Facet(
            input_group="images",
            fields={
                "latent": role.FieldValues(
                    values=[
                        role.FieldValue(value=tensor(tensor_pb2.Payload(buffer=buffer("b1"))), origin_path=[0, 1]),
                        role.FieldValue(value=tensor(tensor_pb2.Payload(inline=bytes(range(16)))), origin_path=[0, 2]),
                    ]
                ),
                "done": role.FieldValues(values=[role.FieldValue(value=value_pb2.Value(signal=value_pb2.Signal()))]),
            },
        ),
        role.Facet(input_group="text", fields={"prompt": role.FieldValues(values=[role.FieldValue(value=text(""))])}),
    ]
    start = role.StartActivation(
        activation=role.ActivationRef(
            call_id="c-1", node="merge", interface="omni.merge", activation_id=LARGE, attempt=2
        ),
        facets=facets,
        tenant="default",
        session="sessions/s1",
        session_ordinal=12,
        session_fence=LARGE,
        deadline=timestamp_pb2.Timestamp(seconds=1_900_000_000, nanos=1),
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        yield_window=64,
        histories=[role.HistoryBoundary(field="thinker", boundary_tokens=600)],
    )
    return role.ExecuteRequest(commands=[role.ExecuteCommand(handle=1, start=start)])


@vector
def execute_results() -> Message:
    """A role's frame: a yield of several fields, an end, a heartbeat."""
    role = role_execution_service_pb2
    fields = {
        "text": text("seven"),
        "score": json_format.ParseDict({"json": {"b": [1.5, None, True], "a": "x"}}, value_pb2.Value()),
        "raw": value_pb2.Value(data=tensor_pb2.Payload(inline=b"")),
    }
    result = role.ExecuteResult(handle=1)
    getattr(result, "yield").CopyFrom(role.ActivationYield(ordinal=0, fields=fields))  # `yield` is a keyword
    return role.ExecuteResponse(
        results=[
            result,
            role.ExecuteResult(handle=1, completed=role.ActivationCompleted(yield_count=1)),
            role.ExecuteResult(heartbeat=role.StreamHeartbeat()),
        ]
    )


@vector
def graph_spec() -> Message:
    """A graph with a chunked edge, a count join and an optional field."""
    spec = graph_spec_pb2
    a_text = spec.Field(name="prompt", type=value_pb2.VALUE_TYPE_TEXT)
    audio = spec.Field(name="audio", type=value_pb2.VALUE_TYPE_AUDIO)
    count = spec.Field(name="count", type=value_pb2.VALUE_TYPE_JSON)
    return spec.GraphSpec(
        name="graphs/speak",
        nodes=[
            spec.Node(
                name="llm",
                interface="assistant.llm",
                role="llm",
                input_groups=[spec.InputGroup(name="turn", fields=[a_text])],
                outputs=[a_text, count],
                is_streaming=True,
                balance=spec.BALANCE_POLICY_KV_AWARE,
                replay=spec.REPLAY_MODE_CONTINUE,
            ),
            spec.Node(
                name="join",
                interface="assistant.join",
                is_inline=True,
                input_groups=[spec.InputGroup(name="all", fields=[audio, count])],
                outputs=[audio],
                activate_by_count=[spec.CountTrigger(field="audio", count_field="count")],
            ),
        ],
        edges=[
            spec.Edge(source_field="prompt", target_node="llm", target_group="turn", target_field="prompt"),
            spec.Edge(
                source_node="llm",
                source_field="count",
                target_node="join",
                target_field="count",
                chunks=spec.ChunkPolicy(size=4, left_context=1, flush=False),
            ),
        ],
        placeholders=[spec.Placeholder(field=a_text, is_streaming=True)],
        outputs=[spec.Output(field=audio, is_unordered=True)],
    )


@vector
def graph_spec_figure4() -> Message:
    """What the DSL makes of figure 4 in the guide to graphs. Clients of other languages build the same message by hand."""
    blocks = GUIDE.read_text(encoding="utf-8").split("```python\n")
    code = next(block for block in blocks if block.startswith("# figure4.py")).partition("```")[0]
    scope: dict[str, Any] = {"__name__": "figure4"}
    exec(code, scope)
    made: Message = scope["graph"].spec()
    return made


@vector
def kv_layout() -> Message:
    """One of four tensor-parallel shards of a two-layer parameter."""
    return kv_layout_pb2.KvLayout(
        layout_id=LAYOUT_ID,
        parameter="kv_cache",
        outer=[kv_layout_pb2.Dimension(name="layer", labels=["0", "1"])],
        slices=[
            kv_layout_pb2.Dimension(name="kv", labels=["k", "v"]),
            kv_layout_pb2.Dimension(name="kv_head", labels=["2", "3"]),
        ],
        page_tokens=64,
        slice_spec=tensor_pb2.TensorSpec(element_type=tensor_pb2.ELEMENT_TYPE_BFLOAT16, shape=[64, 1, 128]),
        cache_semantics_id="smollm2-135m@1",
        axis_order=["token", "kv_head", "head_dim"],
        strides_bytes=[256, 256, 2],
    )


@vector
def publish_pages() -> Message:
    """The last partial page of a session gives way to its extended version."""
    page = page_pb2.Page(
        id=page_pb2.PageId(session_page=page_pb2.SessionPageId(session="sessions/s1", index=9, dirty_key="t12")),
        valid_tokens=17,
        crc32c=[0xDEADBEEF],
    )
    chain = page_pb2.ChainUpdate(
        session="sessions/s1", session_fence=LARGE, expected_pages=10, total_tokens=593, turn=12, keep_pages=9
    )
    return kv_directory_service_pb2.PublishPagesRequest(
        tenant="default",
        node=node("node-a"),
        store_incarnation=3,
        parameter="history_info",
        layout_ids=[LAYOUT_ID],
        pages=[page],
        chain=chain,
        tier=kv_layout_pb2.TIER_HOST,
    )


@vector
def push_pages_request() -> Message:
    """A transfer of two content pages into four regions."""
    destinations = [
        transfer_service_pb2.PageDestination(
            id=content_page(digit),
            regions=[
                memory_region_pb2.MemoryRegion(
                    segment="node-b:0",
                    address=2**47 + part * 4096,
                    size_bytes=4096,
                    remote_key=b"\x00k",
                    device="cuda:0",
                )
                for part in range(2)
            ],
            generation=5,
        )
        for digit in (1, 254)
    ]
    return transfer_service_pb2.PushPagesRequest(
        transfer_id="t-1",
        tenant="default",
        consumer=node("node-b"),
        provider_epoch=7,
        transport="tcp",
        parameter="kv_cache",
        source_layout_id=LAYOUT_ID,
        pages=destinations,
        pin_ttl=duration_pb2.Duration(seconds=30),
        timeout=duration_pb2.Duration(nanos=250_000_000),
    )


@vector
def push_pages_response() -> Message:
    """One page arrived, one is uncertain."""
    transfer = transfer_service_pb2
    return transfer.PushPagesResponse(
        pages=[
            transfer.PageTransfer(
                page=page_pb2.Page(id=content_page(1), valid_tokens=64, crc32c=[1]),
                result=transfer.TRANSFER_RESULT_WRITTEN,
                generation=5,
            ),
            transfer.PageTransfer(
                page=page_pb2.Page(id=content_page(254)), result=transfer.TRANSFER_RESULT_UNCERTAIN, generation=5
            ),
        ],
        size_bytes=8192,
    )


@vector
def memory_operations() -> Message:
    """A client's frame: acquire two parameters at once, commit, allocate."""
    pool, session = global_pool_pb2, memory_session_service_pb2
    acquire = pool.AcquirePagesRequest(
        holder_id="c-1/llm/1",
        call_id="c-1",
        acquisitions=[
            pool.PageAcquisition(
                pool="kv",
                parameter="kv_cache",
                namespace=b"\x01\x02",
                read=[content_page(1), content_page(254)],
                write_pages=2,
            ),
            pool.PageAcquisition(
                pool="history", parameter="history_info", session="sessions/s1", session_fence=LARGE, max_tokens=0
            ),
        ],
        max_wait=duration_pb2.Duration(seconds=1),
    )
    commit = pool.CommitPagesRequest(
        holder_id="c-1/llm/1",
        commits=[
            pool.PageCommit(
                pool="kv",
                parameter="kv_cache",
                pages=[
                    pool.WrittenPage(
                        ref=pool.SlotRef(slot=41, generation=5),
                        page=page_pb2.Page(id=content_page(3), valid_tokens=64),
                        seal=True,
                    )
                ],
                publish=True,
            )
        ],
        durability=pool.DURABILITY_SEALED,
    )
    allocate = tmp_buffer_pb2.AllocateBlocksRequest(
        holder_id="c-1/vit/1", call_id="c-1", blocks=[tmp_buffer_pb2.BlockSpec(size_bytes=2**32, device="cuda:0")]
    )
    return session.SessionRequest(
        messages=[
            session.ClientMessage(operation=session.Operation(operation_id=1, tenant="default", acquire_pages=acquire)),
            session.ClientMessage(operation=session.Operation(operation_id=2, tenant="default", commit_pages=commit)),
            session.ClientMessage(operation=session.Operation(operation_id=3, tenant="t2", allocate_blocks=allocate)),
            session.ClientMessage(heartbeat=session.ClientHeartbeat()),
        ],
        acknowledged_operation_id=LARGE,
    )


@vector
def memory_results() -> Message:
    """The manager's frame: a hello, a grant with a copy, an error."""
    pool, session = global_pool_pb2, memory_session_service_pb2
    grant = pool.PageGrant(
        read=[
            pool.PageSlot(
                ref=pool.SlotRef(slot=0, generation=1), page=page_pb2.Page(id=content_page(1), valid_tokens=64)
            )
        ],
        copies=[pool.PageSlot(ref=pool.SlotRef(slot=9, generation=2), is_copy=True)],
        missing=[content_page(254)],
        read_tokens=64,
    )
    hello = session.ManagerHello(
        manager_id="node-a",
        node_id="node-a",
        epoch=7,
        session_token="st",
        heartbeat_interval=duration_pb2.Duration(seconds=1),
        detach_kill=duration_pb2.Duration(seconds=30),
        broker_path="/run/omniflow/broker.sock",
        protocol_revision=1,
    )
    return session.SessionResponse(
        messages=[
            session.ManagerMessage(hello=hello),
            session.ManagerMessage(
                result=session.OperationResult(operation_id=1, acquire_pages=pool.AcquirePagesResponse(grants=[grant]))
            ),
            session.ManagerMessage(result=session.OperationResult(operation_id=3, error=a_status())),
        ]
    )


@vector
def session() -> Message:
    """A fork with two histories, one of them partly hidden."""
    return session_pb2.Session(
        name="sessions/s2",
        state=session_pb2.SESSION_STATE_ACTIVE,
        histories={
            "thinker": session_pb2.History(tokens=600, retained_tokens=700),
            "talker": session_pb2.History(),
        },
        turn=12,
        active_call_ids=["c-1"],
        create_time=timestamp_pb2.Timestamp(seconds=1_800_000_000),
        expire_time=timestamp_pb2.Timestamp(seconds=1_800_003_600, nanos=999_999_999),
        etag="12-1",
        parent="sessions/s1",
        retention=session_pb2.Retention(idle_ttl=duration_pb2.Duration(seconds=3600), is_evictable=True),
        labels={"b": "2", "a": "1", "ä": ""},
    )


def binary_of(message: Message) -> bytes:
    """The wire form with map entries in the order of their keys."""
    return message.SerializeToString(deterministic=True)


def json_of(message: Message) -> str:
    """The JSON form, keys sorted."""
    return json_format.MessageToJson(message, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Write every fixture, and remove those that are no longer made."""
    DATA.mkdir(exist_ok=True)
    messages = {name: make() for name, make in MADE.items()}
    for stale in DATA.iterdir():
        if stale != INDEX and stale.stem not in messages:
            stale.unlink()
    for name, message in messages.items():
        (DATA / f"{name}.binpb").write_bytes(binary_of(message))
        (DATA / f"{name}.json").write_text(json_of(message), encoding="utf-8")
    types = {name: message.DESCRIPTOR.full_name for name, message in messages.items()}
    INDEX.write_text(json.dumps(types, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
