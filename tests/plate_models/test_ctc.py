"""CTC: encoding, greedy and beam decoding, joined rows, alternatives of each character."""

import itertools

import numpy as np
import pytest
from spelled import log_probs_along

from plate_models.recognition import ctc

ALPHABET = "AB1"


@pytest.mark.parametrize(("classes", "steps"), [(2, 1), (2, 5), (3, 4), (4, 1), (4, 4), (4, 5)])
def test_probabilities_equal_the_sum_over_every_path(classes, steps, monkeypatch):
    log_probs = ctc.log_softmax(2 * np.random.default_rng(7).normal(size=(classes, steps)))
    alphabet = ALPHABET[: classes - 1]
    exact = {}
    for path in itertools.product(range(classes), repeat=steps):
        merged = [k for k, _ in itertools.groupby(path) if k != classes - 1]
        text = "".join(alphabet[k] for k in merged)
        probability = float(np.exp(sum(log_probs[k, t] for t, k in enumerate(path))))
        exact[text] = exact.get(text, 0.0) + probability
    with monkeypatch.context() as unpruned:
        unpruned.setattr(ctc, "_PRUNE_BELOW", 0.0)
        assert dict(ctc.beam_decode(log_probs, alphabet, width=1000)) == pytest.approx(exact)
    narrow = ctc.beam_decode(log_probs, alphabet, width=4)
    assert narrow[0][0] == max(exact, key=exact.__getitem__)
    assert [p for _, p in narrow] == sorted((p for _, p in narrow), reverse=True)
    assert all(p <= exact[text] + 1e-12 for text, p in narrow)
    lengths = range(log_probs.shape[1] + 2)
    texts = ["".join(t) for n in lengths for t in itertools.product(alphabet, repeat=n)]
    found = ctc.text_probabilities(log_probs, texts, alphabet)
    assert found == pytest.approx([exact.get(text, 0.0) for text in texts])
    for text in texts:
        if 1 <= len(text) <= 3:
            expected = [
                [exact.get(text[:i] + char + text[i + 1 :], 0.0) for char in (*alphabet, "")]
                for i in range(len(text))
            ]
            alternatives = ctc.character_alternatives(log_probs, text, alphabet)
            assert alternatives == pytest.approx(np.array(expected)), text


def test_joined_rows_are_decoded_one_after_the_other():
    rows = [log_probs_along(path, 0.9, ALPHABET) for path in ("AA-1", "1-B-")]
    joined = ctc.join_rows(*rows)
    # "AA" within a row is one "A"; a row's last "1" and the next row's first "1" are two.
    assert ctc.greedy_decode(joined, ALPHABET) == "A11B"
    assert ctc.beam_decode(joined, ALPHABET)[0][0] == "A11B"
    upper = ctc.text_probabilities(rows[0], ["A1"], ALPHABET)[0]
    lower = ctc.text_probabilities(rows[1], ["1B"], ALPHABET)[0]
    # The sum also has the other splits of the text into rows, which are far less likely.
    together = ctc.text_probabilities(joined, ["A11B"], ALPHABET)[0]
    assert together == pytest.approx(upper * lower, rel=0.01)


def test_an_error_names_what_does_not_fit_the_alphabet():
    with pytest.raises(ValueError, match=r"expected 37 classes.*got 4"):
        ctc.greedy_decode(log_probs_along("A-A", 0.9, ALPHABET))
    with pytest.raises(ValueError, match="'Q'"):
        ctc.encode("AQ", ALPHABET)
