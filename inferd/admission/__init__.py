"""Who runs now, who waits, and who is turned away: pure decisions."""
