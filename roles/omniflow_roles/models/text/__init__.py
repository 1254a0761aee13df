"""A role that serves any supported text model: models are loaded and unloaded while it runs."""
