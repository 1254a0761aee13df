"""Pure decisions: graph planning and control flow.

Nothing here does I/O, reads a clock, draws a random number or knows protobuf. Events come in, commands go out; time and
random draws arrive inside the events. import-linter holds the package to that.
"""
