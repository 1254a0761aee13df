"""Nineteen graphs of the kinds that are served, as golden plans: joins with their anchors, gates and chunks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from omniflow_core.graph.plan import plan_graph
from omniflow_core.graph.spec import ChunkSpec, GraphSpec
from tests.support.graphs import graph, node


@dataclass(frozen=True, slots=True)
class Golden:
    """A graph and what must be found out about it: "kind anchor" by group, the anchor empty for the call."""

    spec: GraphSpec
    groups: dict[str, str]
    gates: tuple[str, ...] = ()
    chunked: tuple[str, ...] = ()


GRAPHS: dict[str, Golden] = {
    "language model": Golden(
        graph((node("entry"), node("llm"), node("detok")), "x>entry.x entry.y>llm.x llm.y>detok.x detok.y>out"),
        {"entry.main": "single ", "llm.main": "single entry", "detok.main": "single llm"},
    ),
    "language model with tools": Golden(
        graph(
            (
                node("entry"),
                node("llm", "first: x; more: result", outputs="y tool", loop_bound=8),
                node("tools"),
            ),
            "x>entry.x entry.y>llm.first.x llm.tool>tools.x tools.y>llm.more.result llm.y>out",
        ),
        {
            "entry.main": "single ",
            "llm.first": "single entry",
            "llm.more": "single tools",
            "tools.main": "single llm",
        },
    ),
    "images into a language model": Golden(
        graph(
            (
                node("parser", outputs="text image images#"),
                node("vit"),
                node("llm", "text emb images#", counts="text=1 emb=images"),
            ),
            "x>parser.x parser.image>vit.x vit.y>llm.emb parser.text>llm.text parser.images>llm.images llm.y>out",
        ),
        {"parser.main": "single ", "vit.main": "single parser", "llm.main": "count "},
    ),
    "speech recognition": Golden(
        graph(
            (node("chunker"), node("encoder"), node("decoder")),
            "s>chunker.x chunker.y>encoder.x encoder.y>decoder.x decoder.y>out",
            inputs="",
            streaming="s",
        ),
        {"chunker.main": "single ", "encoder.main": "single chunker", "decoder.main": "single encoder"},
    ),
    "transcription with speakers": Golden(
        graph(
            (node("chunker"), node("asr"), node("diarize"), node("merge", "words speakers")),
            "s>chunker.x chunker.y>asr.x chunker.y>diarize.x asr.y>merge.words diarize.y>merge.speakers merge.y>out",
            inputs="",
            streaming="s",
        ),
        {
            "chunker.main": "single ",
            "asr.main": "single chunker",
            "diarize.main": "single chunker",
            "merge.main": "prefix chunker",
        },
    ),
    "speech with a reference voice": Golden(
        graph(
            (node("voice"), node("talker", "text voice?"), node("code2wav")),
            "ref>voice.x text>talker.text voice.y>talker.voice talker.y>code2wav.x code2wav.y>out",
            inputs="text ref?",
            chunks={"talker.y>code2wav.x": ChunkSpec(first=2, size=8, left_context=4)},
        ),
        {"voice.main": "single ", "talker.main": "prefix ", "code2wav.main": "single talker"},
        chunked=("code2wav.main",),
    ),
    "speech in three stages": Golden(
        graph(
            (node("lm"), node("flow"), node("vocoder")),
            "x>lm.x lm.y>flow.x flow.y>vocoder.x vocoder.y>out",
            chunks={"lm.y>flow.x": ChunkSpec(size=25, left_context=3)},
        ),
        {"lm.main": "single ", "flow.main": "single lm", "vocoder.main": "single flow"},
        chunked=("flow.main",),
    ),
    "music": Golden(
        graph(
            (node("ar", "lyrics caption"), node("dit"), node("vae")),
            "lyrics>ar.lyrics caption>ar.caption ar.y>dit.x dit.y>vae.x vae.y>out",
            inputs="lyrics caption",
        ),
        {"ar.main": "single ", "dit.main": "single ar", "vae.main": "single dit"},
    ),
    "omni": Golden(
        graph(
            (
                node("pre", outputs="text image sound"),
                node("vit"),
                node("aud"),
                node("thinker", "text image? sound?", outputs="text hidden", is_session_ordered=True),
                node("talker"),
                node("code2wav"),
            ),
            "x>pre.x pre.image>vit.x pre.sound>aud.x pre.text>thinker.text vit.y>thinker.image aud.y>thinker.sound "
            "thinker.text>text thinker.hidden>talker.x talker.y>code2wav.x code2wav.y>audio",
            outputs="text audio",
        ),
        {
            "pre.main": "single ",
            "vit.main": "single pre",
            "aud.main": "single pre",
            "thinker.main": "prefix pre",
            "talker.main": "single thinker",
            "code2wav.main": "single talker",
        },
        gates=("thinker",),
    ),
    "one model for all": Golden(
        graph(
            (
                node("pre", outputs="text image sound"),
                node("vit"),
                node("hear"),
                node("llm", "text: t; seen: emb; heard: emb", outputs="text image sound", is_session_ordered=True),
                node("draw"),
                node("speak"),
            ),
            "x>pre.x pre.image>vit.x pre.sound>hear.x pre.text>llm.text.t vit.y>llm.seen.emb hear.y>llm.heard.emb "
            "llm.text>text llm.image>draw.x llm.sound>speak.x draw.y>image speak.y>audio",
            outputs="text image audio",
        ),
        {
            "pre.main": "single ",
            "vit.main": "single pre",
            "hear.main": "single pre",
            "llm.text": "single pre",
            "llm.seen": "single vit",
            "llm.heard": "single hear",
            "draw.main": "single llm",
            "speak.main": "single llm",
        },
        gates=("llm",),
    ),
    "full duplex": Golden(
        graph(
            (
                node("thinker", "heard: x; spoken: z; interrupt: i", outputs="text hidden", loop_bound=1000),
                node("talker", outputs="audio again"),
            ),
            "s>thinker.heard.x stop>thinker.interrupt.i thinker.hidden>talker.x talker.again>thinker.spoken.z "
            "thinker.text>text talker.audio>audio",
            inputs="",
            streaming="s stop",
            outputs="",
            unordered="text audio",
        ),
        {
            "thinker.heard": "single ",
            "thinker.spoken": "single talker",
            "thinker.interrupt": "single ",
            "talker.main": "single thinker",
        },
    ),
    "image generation": Golden(
        graph(
            (
                node("parser", outputs="text image vits# vaes#"),
                node("embed"),
                node("vit"),
                node("vae"),
                node("ar", "text: emb; image: vit vae", outputs="text done", is_session_ordered=True),
                node("dit", "signal: done; images: vit vae; counts: vits# vaes#", counts="done=1 vit=vits vae=vaes"),
                node("decoder"),
            ),
            "x>parser.x parser.text>embed.x parser.image>vit.x parser.image>vae.x embed.y>ar.text.emb "
            "vit.y>ar.image.vit vae.y>ar.image.vae ar.text>text ar.done>dit.signal.done vit.y>dit.images.vit "
            "vae.y>dit.images.vae parser.vits>dit.counts.vits parser.vaes>dit.counts.vaes dit.y>decoder.x decoder.y>image",
            outputs="text image",
        ),
        {
            "parser.main": "single ",
            "embed.main": "single parser",
            "vit.main": "single parser",
            "vae.main": "single parser",
            "ar.text": "single embed",
            "ar.image": "prefix parser",
            "dit.signal": "count ",
            "dit.images": "count ",
            "dit.counts": "count ",
            "decoder.main": "single dit",
        },
        gates=("ar",),
    ),
    "understanding and generation experts": Golden(
        graph(
            (node("und"), node("gen", "start: x; step: z", outputs="y again", loop_bound=50), node("vae")),
            "x>und.x und.y>gen.start.x gen.again>gen.step.z gen.y>vae.x vae.y>out",
        ),
        {"und.main": "single ", "gen.start": "single und", "gen.step": "single gen", "vae.main": "single gen"},
    ),
    "image edit": Golden(
        graph(
            (
                node("text"),
                node("encoder"),
                node("dit", "start: prompt latent; step: z", outputs="y again", loop_bound=50),
                node("decoder"),
            ),
            "prompt>text.x image>encoder.x text.y>dit.start.prompt encoder.y>dit.start.latent dit.again>dit.step.z "
            "dit.y>decoder.x decoder.y>out",
            inputs="prompt image",
        ),
        {
            "text.main": "single ",
            "encoder.main": "single ",
            "dit.start": "prefix ",
            "dit.step": "single dit",
            "decoder.main": "single dit",
        },
    ),
    "video from text and image": Golden(
        graph(
            (
                node("text"),
                node("vae"),
                node("high", "prompt latent?"),
                node("low"),
                node("decoder"),
            ),
            "prompt>text.x image>vae.x text.y>high.prompt vae.y>high.latent high.y>low.x low.y>decoder.x decoder.y>out",
            inputs="prompt image?",
            chunks={"low.y>decoder.x": ChunkSpec(first=1, size=4, left_context=2)},
        ),
        {
            "text.main": "single ",
            "vae.main": "single ",
            "high.main": "prefix ",
            "low.main": "single high",
            "decoder.main": "single low",
        },
        chunked=("decoder.main",),
    ),
    "video with sound": Golden(
        graph(
            (
                node("text"),
                node("dit", outputs="video audio"),
                node("vvae"),
                node("avae"),
                node("mux", "video audio"),
            ),
            "x>text.x text.y>dit.x dit.video>vvae.x dit.audio>avae.x vvae.y>mux.video avae.y>mux.audio mux.y>out",
        ),
        {
            "text.main": "single ",
            "dit.main": "single text",
            "vvae.main": "single dit",
            "avae.main": "single dit",
            "mux.main": "prefix dit",
        },
    ),
    "action policy": Golden(
        graph(
            (
                node("split", outputs="left right wrist state"),
                node("left"),
                node("right"),
                node("wrist"),
                node("vlm", "left right wrist state", is_session_ordered=True),
                node("flow", "start: x; step: z", outputs="y again", loop_bound=10_000),
            ),
            "obs>split.x split.left>left.x split.right>right.x split.wrist>wrist.x left.y>vlm.left right.y>vlm.right "
            "wrist.y>vlm.wrist split.state>vlm.state vlm.y>flow.start.x flow.again>flow.step.z flow.y>out",
            inputs="",
            streaming="obs",
        ),
        {
            "split.main": "single ",
            "left.main": "single split",
            "right.main": "single split",
            "wrist.main": "single split",
            "vlm.main": "prefix split",
            "flow.start": "single vlm",
            "flow.step": "single flow",
        },
        gates=("vlm",),
    ),
    "action policy by embodiment": Golden(
        graph(
            (
                node("split", outputs="image state"),
                node("cam"),
                node("vlm", "image state", outputs="arm hand", is_session_ordered=True),
                node("arm"),
                node("hand"),
            ),
            "obs>split.x split.image>cam.x cam.y>vlm.image split.state>vlm.state vlm.arm>arm.x vlm.hand>hand.x "
            "arm.y>actions hand.y>actions",
            inputs="",
            streaming="obs",
            outputs="actions",
        ),
        {
            "split.main": "single ",
            "cam.main": "single split",
            "vlm.main": "prefix split",
            "arm.main": "single vlm",
            "hand.main": "single vlm",
        },
        gates=("vlm",),
    ),
    "world model": Golden(
        graph(
            (node("ar", is_session_ordered=True), node("vae")),
            "action>ar.x ar.y>vae.x vae.y>frames",
            inputs="",
            streaming="action",
            outputs="frames",
            chunks={"ar.y>vae.x": ChunkSpec(size=4, left_context=1)},
        ),
        {"ar.main": "single ", "vae.main": "single ar"},
        gates=("ar",),
        chunked=("vae.main",),
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_golden_plan(name: str) -> None:
    golden = GRAPHS[name]
    plan = plan_graph(golden.spec)
    assert {f"{g.node}.{g.group}": f"{g.kind.value} {g.anchor}" for g in plan.groups} == golden.groups
    assert plan.gates == golden.gates
    assert tuple(f"{g.node}.{g.group}" for g in plan.groups if g.chunks) == golden.chunked


def test_golden_graphs_are_nineteen() -> None:
    assert len(GRAPHS) == 19
