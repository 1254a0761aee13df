"""Which sequences a step computes, and in which pages: pure decisions, no tensors, no clock, no threads.

add ─▶ waiting ─ plan() admits ─▶ running ─ plan() gives rows ─▶ Step ─ forward ─▶ commit ─▶ finish
          ▲                          │
          └──── short of pages ──────┘  preempted: pages go, drawn tokens stay, computed again later
"""
