"""What the operator sees: metrics and logs, and never a plate's text."""
