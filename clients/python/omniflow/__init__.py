"""Omni-Flow: call multimodal model graphs, and build them.

Calling:

    async with omniflow.connect("127.0.0.1:7700") as client:
        async for event in client.stream("assistant", text="hi"):
            ...

Building: `Graph`, `Interface` and the values that travel between them. `omniflow.sync` is the client without asyncio,
`omniflow.errors` what goes wrong, `omniflow.testing` runs an interface without a server.
"""

from omniflow.calls import Checkpoint, EventStream
from omniflow.client import Client, Diagnostic, GraphRevision, GraphRevisions, Health, connect
from omniflow.conversation import Conversation, ConversationCall
from omniflow.dsl import GlobalParameter, Graph, GraphError, Node, Port
from omniflow.events import (
    Accepted,
    CallState,
    CallStatus,
    CallUsage,
    Event,
    Finished,
    FinishReason,
    HistoryResult,
    Output,
    OutputPiece,
    Progress,
    Started,
    ToolCall,
)
from omniflow.flow import Flow, RolePlan
from omniflow.interface import Context, Field, Inputs, Interface, Outputs, Sampling, Usage, groups
from omniflow.results import CallResult
from omniflow.values import (
    Action,
    Audio,
    ElementType,
    Image,
    Json,
    Signal,
    Tensor,
    Tokens,
    Value,
    ValueType,
    Video,
)
from omniflow_core.errors import Code, OmniFlowError, Reason

__all__ = [
    "Accepted",
    "Action",
    "Audio",
    "CallResult",
    "CallState",
    "CallStatus",
    "CallUsage",
    "Checkpoint",
    "Client",
    "Code",
    "Context",
    "Conversation",
    "ConversationCall",
    "Diagnostic",
    "ElementType",
    "Event",
    "EventStream",
    "Field",
    "FinishReason",
    "Finished",
    "Flow",
    "GlobalParameter",
    "Graph",
    "GraphError",
    "GraphRevision",
    "GraphRevisions",
    "Health",
    "HistoryResult",
    "Image",
    "Inputs",
    "Interface",
    "Json",
    "Node",
    "OmniFlowError",
    "Output",
    "OutputPiece",
    "Outputs",
    "Port",
    "Progress",
    "Reason",
    "RolePlan",
    "Sampling",
    "Signal",
    "Started",
    "Tensor",
    "Tokens",
    "ToolCall",
    "Usage",
    "Value",
    "ValueType",
    "Video",
    "connect",
    "groups",
]
