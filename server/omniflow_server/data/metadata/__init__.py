"""The metadata store: what the processes of a cluster agree on."""
