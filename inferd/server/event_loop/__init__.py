"""Fair shares of event-loop time for the users whose tasks run on it."""
