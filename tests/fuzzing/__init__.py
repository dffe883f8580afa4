"""Hostile requests, made from a seed and sent to the real service: `make fuzz`.

attempts.py     one request as the bytes of a connection; sending it
verdicts.py     what no answer may be
requests.py     heads, forms and routes that the kinds below are built from
files.py        damaged and spliced image files
forms.py        malformed multipart bodies
connections.py  malformed HTTP, early hang-ups, slow bodies
parameters.py   odd values of every parameter, header and field
pictures.py     odd pictures in sound files, for the nets and the decoding
documents.py    schemathesis on the service's own OpenAPI document
tensors.py      wrong tensors, straight to Triton
service.py      the service's processes, their memory and their log
campaign.py     sends all of it and prints what came
"""
