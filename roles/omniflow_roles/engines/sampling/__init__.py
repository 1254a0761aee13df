"""How the next token is drawn from a model's logits: the caller's parameters as a plan, and the plan carried out.

    plan ─▶ parameters ─┐
    seeds ─▶ uniforms ──┼─▶ draw ─▶ tokens, log-probabilities
    constraints ─▶ masks┤
    counts ─▶ logits ───┘

`plan` and `seeds` are pure. The others import torch, `constraints` llguidance too.
"""
