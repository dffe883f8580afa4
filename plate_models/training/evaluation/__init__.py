"""The scoreboard. Each part is a module with a function that makes a report of its own.

`labelled` scores photos whose plates are labelled, `world` lists what is read on photos of
other countries, `rendered` scores the rendered benchmark, `engines` holds an engine against
the float32 reference, `grammar` tells what the grammar wins and breaks, `comparison` sets two
kept reports side by side.
`failure_sheet` and `world_sheet` draw what a person should look at. A report has ``lines()``
for the terminal and ``to_dict()`` for a file.
"""
