"""The measurements of `plates eval`: sets of photos, and a scoreboard for each row of its table.

`plates eval --json FILE` writes weights, engine, device and date, and "rows": for each row of the
table "counts", a list of {name, hits, total, interval_95, rate}, "plates" with every plate's label,
answers and verdicts, and "elsewhere", the boxes that overlap no known plate.
"""
