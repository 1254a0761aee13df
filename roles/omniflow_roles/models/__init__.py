"""Models that come with the platform: each a folder with its interfaces and its flow."""
