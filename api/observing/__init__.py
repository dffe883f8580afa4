"""What the operator is told: metrics and logs, and never a plate's text."""
