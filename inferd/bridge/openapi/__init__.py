"""The description of the bridge's routes as OpenAPI has it, from what decides; no I/O."""
