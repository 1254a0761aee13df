"""How an Execute link reaches its replica: gRPC everywhere, lanes on the same host."""
