"""The process around interfaces: a gRPC server that runs activations for control planes.

registry ◀── registration ──┐                         ┌── InterfaceSeat: runs and waits ── Activation ── Interface
control plane ◀── ExecuteLink ──▶ RoleHost ───────────┤
  (one per control plane)  │                          └── …
                           └── WriterPump: all results of the link, joined as they queue up
other replicas ◀── PeerLinks ── Pipelines: yields that go on without the control plane in between
"""
