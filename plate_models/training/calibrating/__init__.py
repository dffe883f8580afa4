"""Fits and measures the calibration of scores, on crops whose text is known.

`mix` says what the crops are like and makes them, `trials` reads them in several processes,
`metrics` and `fitting` are the arithmetic, `pictures` draws, `run` puts them together.
"""
