"""Models that other programs have on this machine; they are read and never changed."""
