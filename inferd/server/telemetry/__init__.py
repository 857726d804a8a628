"""Status, logs, metrics and sd_notify."""
