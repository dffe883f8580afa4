"""The scoreboard: each module scores one part of `plates eval`.

A report has ``lines()`` for the terminal and ``to_dict()`` for a file. `plates eval --json FILE`
keeps weights, engine, device and date, and a key for each part. Figures to quote lie under
"labelled", "world" and "rendered": "counts" is a list of {name, hits, total, interval_95, rate}, in
"rendered" by kind under "kinds"; "plates" holds every plate with its label, its answers and why it
failed.
"""
