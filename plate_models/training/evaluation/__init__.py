"""The scoreboard: each module scores one part of `plates eval`.

`labelled` scores photos whose plates are labelled, `world` lists what is read on photos of
other countries, `rendered` scores the rendered benchmark, `agreement` compares an engine, or
Triton, with the reference. `comparison` sets two kept reports side by side, `sheet` draws
what a person should look at.

A report has ``lines()`` for the terminal and ``to_dict()`` for a file; a report with a floor has
``passed``. `plates eval --json FILE` keeps weights, engine, device and date, and a key for each
part. Figures to quote lie under "labelled", "world" and "rendered": "counts" is a list of
{name, hits, total, interval_95, rate}, in "rendered" by kind under "kinds"; "plates" holds every
plate with its label, its answers and why it failed.
"""
