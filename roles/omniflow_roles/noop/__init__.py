"""Interfaces without a model, for tests and benchmarks. Parameters come as a JSON object; what is left out has a default."""

from omniflow_roles.noop.denoising import BeginStep, Guide, PredictNoise, PrepareLatents
from omniflow_roles.noop.failing import Cancel, Fail, Undeclared
from omniflow_roles.noop.frames import Diffuse, Generate, Parse
from omniflow_roles.noop.large import Large, Mirror, Swallow
from omniflow_roles.noop.speech import Codes, Vocoder
from omniflow_roles.noop.stages import Gather, Repeat, Step
from omniflow_roles.noop.streaming import Burst, Count, CountBlocking, Pace, Progress
from omniflow_roles.noop.text import Echo, Join
from omniflow_roles.noop.tools import Agent
from omniflow_roles.noop.waiting import Block, Sleep, Stubborn

__all__ = [
    "Agent",
    "BeginStep",
    "Block",
    "Burst",
    "Cancel",
    "Codes",
    "Count",
    "CountBlocking",
    "Diffuse",
    "Echo",
    "Fail",
    "Gather",
    "Generate",
    "Guide",
    "Join",
    "Large",
    "Mirror",
    "Pace",
    "Parse",
    "PredictNoise",
    "PrepareLatents",
    "Progress",
    "Repeat",
    "Sleep",
    "Step",
    "Stubborn",
    "Swallow",
    "Undeclared",
    "Vocoder",
]
