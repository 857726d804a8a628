"""Share the machine's memory among backends: measure, predict and plan."""
