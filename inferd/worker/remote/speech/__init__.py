"""Speech as the APIs of remotes have it: a form with a file, and a transcript with times."""
