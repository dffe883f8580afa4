"""Hostile requests, made from a seed and sent to the real service: `make fuzz`.

exchange.py   what is sent on one connection, and its answer
kinds.py      hostile files, forms, pictures, connections and parameters, and their shares
documents.py  schemathesis on the service's own OpenAPI document
tensors.py    wrong tensors, straight to Triton
verdicts.py   what no answer may be
campaign.py   sends all of it, watches the service's processes, and prints what came
"""
