"""Drivers of the control-flow core: calls, replicas, logs."""
