"""Graphs: definition (`spec`), compiled plan (`plan`) and how it is shown (`explain`)."""
