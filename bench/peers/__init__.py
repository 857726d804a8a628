"""What the daemon is measured against, built from the sources of our own library."""
