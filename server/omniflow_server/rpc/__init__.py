"""Servicers: translation between messages and the control plane, nothing else."""
