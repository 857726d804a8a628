"""The commands. Each module has ``add_arguments(parser)`` and ``run(arguments)``."""
