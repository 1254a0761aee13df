"""The data plane, and what processes know of each other."""
