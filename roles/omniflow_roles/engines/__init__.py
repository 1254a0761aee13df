"""Engines that run model code for interfaces: what to compute next, and how."""
