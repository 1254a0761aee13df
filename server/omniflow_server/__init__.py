"""The control plane: gRPC servicers, the drivers of the pure core, the supervisor and the command line."""
