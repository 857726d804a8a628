"""Large request lines, of 32 KiB and more: kept in parts, decoded in child processes."""
