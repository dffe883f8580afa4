"""Hostile requests, made from a seed and sent to the real service: `make fuzz`.

exchange.py   one request as the bytes of a connection: making it of sound parts, sending it
verdicts.py   what no answer may be
bodies.py     damaged files, malformed forms, odd pictures
heads.py      malformed HTTP, early hang-ups, slow bodies; odd parameters, headers and fields
documents.py  schemathesis on the service's own OpenAPI document
tensors.py    wrong tensors, straight to Triton
campaign.py   sends all of it, watches the service's processes, and prints what came
"""
