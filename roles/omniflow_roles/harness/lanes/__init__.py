"""How control planes reach a role: the Execute stream of gRPC, and lanes for those on the same host."""
