"""Checks of the machine, the installation and the configuration, with hints at repairs."""
