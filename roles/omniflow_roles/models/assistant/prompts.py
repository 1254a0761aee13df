"""Fixed texts: what the model is told to be, and the questions of the demo.

The demo's questions were chosen by measurement, greedy, over thirty candidates: the answer is right and ends by itself
within 60 tokens, the speech of it is read back by the recogniser with 81 to 95 % of its words over speaking rates from
0.8 to 1, and the spoken question is transcribed without a mistake at each of them.
"""

SYSTEM = "You are a helpful voice assistant. Answer in one or two short, simple sentences."
"""A model this small rambles under its own default prompt; an answer that is spoken has to be short."""

TYPED_QUESTION = "What is music?"
SPOKEN_QUESTION = "Why is water important?"
