"""Checkpoints on a disk: what they are, whether the engine can load them, and loading them.

`inspect` reads headers only and needs nothing but the standard library, so that `omniflow model check` runs in the control
plane's environment. `load`, `gguf` need torch and transformers and are imported in a role's process.
"""
