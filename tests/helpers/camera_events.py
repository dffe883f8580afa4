"""Passes as the camera workers report them, and a database for them."""

from plates.cameras.events import Pass
from plates.cameras.settings import Storage
from plates.cameras.store import PassesQuery, Store

SIGNING_KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # signs webhooks


def a_pass(number=1, kind="ended", revision=1, **changes):
    begin = 1769860800.0 + number
    quad = ((405, 331), (476, 331), (476, 353), (405, 353))
    fields = {
        "text": "X556XM750",
        "text_native": "Х556ХМ750",
        "score": 0.998,
        "readable": True,
        "format": "ru.car",
        "region": {"code": "750", "name": "Moscow Oblast", "country": "ru"},
        "characters": [],
        "candidates": [{"text": "X556XM750", "score": 0.998}, {"text": "X556XM75", "score": 0.1}],
        "evidence": {"frames_seen": 9, "frames_read": 6, "best_single": {"text": "", "score": 0}},
        "time": {"first": begin, "last": begin + 2.5, "best": begin + 1.25}
        | {"source": "rtcp", "position_s": 12.4},
        "motion": {"direction": "approaching", "stationary": False, "zones": ["drive"]},
        "best": {"box": (405.4, 331.6, 476.0, 353.2), "quad": quad},
        "match": None,
        "stream": {},
        "model": {"version": "1", "weights": "sha256:0"},
    }
    name = {"id": f"0199-{number}", "type": f"pass.{kind}", "revision": revision}
    return Pass.model_validate(fields | name | {"camera": "gate-1"} | changes)


def store_of(place, **changes):
    """A store at a URL or in a folder; keeps texts and pictures unless `changes` differ."""
    url = place if isinstance(place, str) else f"sqlite:///{place}/plates.db"
    return Store(Storage.model_validate({"url": url, "texts": True, "pictures": True} | changes))


def search(store, **query):
    """The stored passes that match a query: their numbers and their JSON."""
    return store.search(PassesQuery(**query))
