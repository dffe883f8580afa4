"""The tools of `plates bench`, and their load client, process measurements and reports."""
