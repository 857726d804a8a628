"""Every bound of the daemon and its processes: value, unit, reason, and the threat it counters.

Bounds that operators may want to change are defaults of settings in ``config/settings.py``;
the others are part of the protocol or of the design.
"""
