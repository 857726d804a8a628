"""The admin socket with its commands, and the reload of the configuration."""
