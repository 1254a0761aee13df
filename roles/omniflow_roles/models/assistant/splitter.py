"""The splitter: passages of an answer to the sentences that are spoken one by one.

It keeps nothing between activations. The obvious alternative takes the tokens themselves and holds the unfinished sentence
per call; but this node runs inside the control plane, once per yield, and would there need a buffer for every call, an end
marker, an order between its activations and a way to hear of failed calls. The node that draws the tokens has that state
anyway, knows the end, and runs in a process of its own: it hands over whole sentences (`PassageBuffer`), and what is left
is a pure function.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import ValueType
from omniflow_roles.models.assistant import sentences


class Splitter(Interface):
    """Passage -> its sentences, one yield each, without mark-up. Nothing for a passage that has nothing to say."""

    name = "assistant.splitter"
    inputs = groups(passage=Field(ValueType.TEXT))
    outputs = {"sentence": Field(ValueType.TEXT)}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
        for sentence in sentences.split(str(inputs["passage"])):
            yield {"sentence": sentence}
