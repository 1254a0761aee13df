"""How a link reaches the replica that it is to: gRPC everywhere, lanes on the same host."""
