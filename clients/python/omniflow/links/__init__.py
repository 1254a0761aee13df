"""What both ends of an Execute link share: the port to its transports, the queue of what it sends, same-host lanes.

A link carries messages, each a serialized ExecuteRequest or ExecuteResponse. The role listens and the control plane dials,
over gRPC or over a lane.
"""
