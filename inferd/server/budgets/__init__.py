"""The budgets of backends: what their requests use is counted, and kept over restarts."""
