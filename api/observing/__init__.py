"""Metrics and logs for operators. They never contain the text of a plate."""
