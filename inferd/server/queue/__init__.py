"""The request queue: positions, permits, preemption, and the order of preparation."""
