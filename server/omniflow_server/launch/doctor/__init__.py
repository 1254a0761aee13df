"""What a machine needs to run flows: one function per check, and none needs a running flow."""
