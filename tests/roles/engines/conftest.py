"""Triton kernels run in Triton's interpreter where there is no GPU; it is asked for before anything imports Triton."""

from __future__ import annotations

import os
from pathlib import Path

if not Path("/dev/nvidia0").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
