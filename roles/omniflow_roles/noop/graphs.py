"""The shapes of graphs that the control flow must get right, with stages that only say what they were given.

    omniflow up noop-figure5

Every call takes an `item` such as {"name": "x"}; see `omniflow_roles.noop.items` for how names tell what happened, and how a
stage is told to be slow or to yield more. Each node is a role of its own; roles are numbered, so that the graphs can share
processes that host all interfaces. `noop-denoise` is another matter: one role has a whole loop.
"""

from __future__ import annotations

from typing import Any

from omniflow.dsl import Graph, Node
from omniflow.flow import Flow, RolePlan
from omniflow.interface import Interface
from omniflow.values import ValueType
from omniflow_roles.noop.denoising import BeginStep, Guide, PredictNoise, PrepareLatents
from omniflow_roles.noop.frames import Diffuse, Generate, Parse
from omniflow_roles.noop.large import Swallow
from omniflow_roles.noop.speech import Codes, Vocoder
from omniflow_roles.noop.stages import Gather, Repeat, Step
from omniflow_roles.noop.tools import Agent

JSON = ValueType.JSON


class _Stages:
    """A graph whose nodes get a role each, in turn."""

    def __init__(self, name: str, description: str) -> None:
        self.graph = Graph(f"noop-{name}", description=description)
        self._roles: list[RolePlan] = []

    def node(self, name: str, interface: type[Interface], **options: Any) -> Node:
        role = f"stage{len(self._roles) + 1}"
        self._roles.append(RolePlan(name=role, interfaces=(interface.name,)))
        return self.graph.node(name, interface, role=role, **options)

    def flow(self) -> Flow:
        return Flow(name=self.graph.name, graph=self.graph, roles=tuple(self._roles))


def _chain3() -> Flow:
    """a -> b -> c: one item, x.a0.b0.c0."""
    made = _Stages("chain3", "Three steps.")
    a, b, c = (made.node(name, Step) for name in "abc")
    made.graph.input("item", JSON) >> a.item
    a.item >> b.item
    b.item >> c.item
    c.item >> made.graph.output("item", JSON)
    return made.flow()


def _diamond(name: str, description: str, a: type[Interface], b: type[Interface], c: type[Interface]) -> Flow:
    """a -> {b, c} -> j: one item for each yield of a, with everything that the branches made of it, in order."""
    made = _Stages(name, description)
    source, left, right = made.node("a", a), made.node("b", b), made.node("c", c)
    j = made.node("j", Gather)
    made.graph.input("item", JSON) >> source.item
    source.item >> [left.item, right.item]
    left.item >> j.a
    right.item >> j.b
    j.item >> made.graph.output("item", JSON)
    return made.flow()


def _fan5() -> Flow:
    """pre -> {img, aud, agg} -> agg -> out: one item; agg takes pre's own item beside what the two branches made of it."""
    made = _Stages("fan5", "A fan of two branches and a short cut.")
    pre, img, aud = (made.node(name, Step) for name in ("pre", "img", "aud"))
    agg, out = made.node("agg", Gather), made.node("out", Step)
    made.graph.input("item", JSON) >> pre.item
    pre.item >> [img.item, aud.item, agg.c]
    img.item >> agg.a
    aud.item >> agg.b
    agg.item >> out.item
    out.item >> made.graph.output("item", JSON)
    return made.flow()


def _figure4() -> Flow:
    """The paper's figure 4: texts of every frame in the order of the frames, and one image for the request.

    parser -> text -> embed ------------> llm -> text
           -> image -> {vit, vae} ------> llm -> done -> diffusion -> decoder -> image
                       {vit, vae}, vit_count, vae_count -> diffusion
    """
    made = _Stages(
        "figure4", "Frames of text and images; generation in their order; diffusion once everything is there."
    )
    parser = made.node("parser", Parse)
    embed, vit, vae = (made.node(name, Step) for name in ("embed", "vit", "vae"))
    llm = made.node("llm", Generate, session_ordered=True)
    diffusion = made.node("diffusion", Diffuse, activate_by_count={"done": 1, "vit": "vit_count", "vae": "vae_count"})
    decoder = made.node("decoder", Step)
    made.graph.input("item", JSON) >> parser.item
    made.graph.input("frames", JSON) >> parser.frames
    parser.text >> embed.item
    parser.image >> [vit.item, vae.item]
    embed.item >> llm.embedding
    vit.item >> [llm.vit, diffusion.vit]
    vae.item >> [llm.vae, diffusion.vae]
    llm.text >> made.graph.output("text", ValueType.TEXT)
    llm.done >> diffusion.done
    parser.vit_count >> diffusion.vit_count
    parser.vae_count >> diffusion.vae_count
    diffusion.item >> decoder.item
    decoder.item >> made.graph.output("image", JSON)
    return made.flow()


def _figure5() -> Flow:
    """The paper's figure 5: one item for each yield of c, with every h in the order of d's yields, and k.

    a -> c -> d -> h -> j
           -> k ------> j
    """
    made = _Stages("figure5", "A generator of generators beside a single step, joined by their common origin.")
    a, c, d = made.node("a", Step), made.node("c", Repeat), made.node("d", Repeat)
    h, k, j = made.node("h", Step), made.node("k", Step), made.node("j", Gather)
    made.graph.input("item", JSON) >> a.item
    a.item >> c.item
    c.item >> [d.item, k.item]
    d.item >> h.item
    h.item >> j.a
    k.item >> j.b
    j.item >> made.graph.output("item", JSON)
    return made.flow()


def _tools() -> Flow:
    """llm -> tool -> llm, eight times at most: a text for each turn of the llm in order, and one answer after the last."""
    made = _Stages("tools", "An agent that calls a tool before it answers.")
    llm, tool = made.node("llm", Agent, loop_bound=8), made.node("tool", Step)
    made.graph.input("item", JSON) >> llm.inputs.prompt.item
    llm.call >> tool.item
    tool.item >> llm.inputs.result.item
    llm.text >> made.graph.output("text", ValueType.TEXT)
    llm.answer >> made.graph.output("answer", JSON)
    return made.flow()


def _speech() -> Flow:
    """text -> codes -> wav: sound as if each text's codes had come at once, three codes a piece, in the order of texts."""
    made = _Stages("speech", "Sound from chunks of codes, with left context.")
    text, codes, wav = made.node("text", Repeat), made.node("codes", Codes), made.node("wav", Vocoder)
    made.graph.input("item", JSON) >> text.item
    text.item >> codes.item
    codes.codes.chunks(3, left_context=1) >> wav.codes
    wav.wav >> made.graph.output("wav", ValueType.AUDIO)
    return made.flow()


def _denoise() -> Flow:
    """prepare -> begin -> {cond, uncond, image} -> guide -> begin, and after the last iteration guide -> vae.

    All but the decoder is one segment: `parameters` such as {"steps": 50} say how often it goes round.
    """
    graph = Graph("noop-denoise", description="A denoising loop with three branches of guidance.")
    prepare = graph.node("prepare", PrepareLatents, role="denoiser")
    begin = graph.node("begin", BeginStep, role="denoiser", loop_bound=1000)
    branches = [graph.node(name, PredictNoise, role="denoiser") for name in ("cond", "uncond", "image")]
    guide = graph.node("guide", Guide, role="denoiser")
    vae = graph.node("vae", Swallow, role="decoder")
    graph.input("parameters", JSON) >> prepare.parameters
    for source, target in ((prepare, begin.inputs.first), (guide, begin.inputs.next)):
        source.latents >> target.latents
        source.schedule >> target.schedule
    begin.latents >> [guide.inputs.main.latents, *(branch.latents for branch in branches)]
    begin.schedule >> [guide.inputs.main.schedule, *(branch.schedule for branch in branches)]
    for branch, field in zip(branches, (guide.cond, guide.uncond, guide.image), strict=True):
        branch.noise >> field
    guide.result >> vae.tensor
    vae.digest >> graph.output("digest", JSON)
    denoiser = (PrepareLatents.name, BeginStep.name, PredictNoise.name, Guide.name)
    return Flow(
        name=graph.name,
        graph=graph,
        roles=(RolePlan(name="denoiser", interfaces=denoiser), RolePlan(name="decoder", interfaces=(Swallow.name,))),
    )


def _pipeline() -> Flow:
    """a -> b -> c: an item for each yield of each yield of a. With `control.pipelines` they go from role to role."""
    made = _Stages("pipeline", "A streaming chain.")
    a, b, c = (made.node(name, stage) for name, stage in (("a", Repeat), ("b", Repeat), ("c", Step)))
    made.graph.input("item", JSON) >> a.item
    a.item >> b.item
    b.item >> c.item
    c.item >> made.graph.output("item", JSON)
    return made.flow()


chain3 = _chain3()
diamond4 = _diamond("diamond4", "Two branches of one step.", Step, Step, Step)
source_repeats = _diamond("source-repeats", "A diamond whose source repeats.", Repeat, Step, Step)
intermediate_repeats = _diamond("intermediate-repeats", "A diamond whose branches repeat.", Step, Repeat, Repeat)
both_repeat = _diamond("both-repeat", "A diamond in which everything repeats.", Repeat, Repeat, Repeat)
fan5 = _fan5()
figure4 = _figure4()
figure5 = _figure5()
tools = _tools()
speech = _speech()
denoise = _denoise()
pipeline = _pipeline()

FLOWS = (
    chain3,
    diamond4,
    source_repeats,
    intermediate_repeats,
    both_repeat,
    fan5,
    figure4,
    figure5,
    tools,
    speech,
    denoise,
    pipeline,
)
