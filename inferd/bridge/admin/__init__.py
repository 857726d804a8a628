"""Routes of our own with which models of the store and of the daemon are managed; pure."""
