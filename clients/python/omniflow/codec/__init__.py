"""One module per proto package: `x_to_proto`, `x_from_proto`; nothing else sees both worlds."""
