"""Role servers: the harness that hosts interfaces, and the models that come with the platform."""
