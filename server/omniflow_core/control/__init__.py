"""Control flow as a state machine: events in, commands out."""
