"""Options of gRPC between processes of the platform. The public edge has its own."""

from __future__ import annotations

import grpc.aio

PROTOCOL_REVISION = 1
"""Of omniflow.role.v1, as this version speaks it."""
MAX_FRAME_BYTES = 16 * 1024 * 1024
"""The largest message that either side takes. A frame is 1 MiB by habit and larger payloads travel apart, but one
activation of a join may carry many inputs. A larger message ends the stream and all that runs on it, so senders stay
below."""
MAX_YIELD_BYTES = 8 * 1024 * 1024
"""The largest frame of one yield; a larger one fails its activation alone."""

_COMMON = (
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    ("grpc.max_send_message_length", MAX_FRAME_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *_COMMON,
    # Peers ping every 10 s, also while a long prefill keeps a stream silent: that is never too many pings.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    # Two processes on one port would share its connections by chance; the second must fail to start.
    ("grpc.so_reuseport", 0),
)

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *_COMMON,
    # A proxy of the environment is for the world outside.
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    # Channels to one target share a connection by default, also one to the life before a restart that is dead already.
    ("grpc.use_local_subchannel_pool", 1),
    # A peer that restarts is back within a second; gRPC's own backoff grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),  # this is how long an attempt may take, on a busy machine too
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


def internal_channel(endpoint: str) -> grpc.aio.Channel:
    """A channel to a process of the platform, by its gRPC target."""
    return grpc.aio.insecure_channel(endpoint, options=CHANNEL_OPTIONS)
