"""Starting, watching and stopping the processes of a flow on one machine."""
