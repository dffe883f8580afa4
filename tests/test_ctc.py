"""CTC: encoding, greedy and beam decoding, scores per character."""

import itertools

import numpy as np
import pytest

from plate_models import ctc

ALPHABET = "AB1"


def log_probs_of(path: str, confidence: float = 0.9) -> ctc.Array:
    """Log-probabilities whose best path is ``path``, with "-" for the blank."""
    symbols = ALPHABET + "-"
    rest = (1 - confidence) / (len(symbols) - 1)
    probs = np.full((len(symbols), len(path)), rest)
    for step, symbol in enumerate(path):
        probs[symbols.index(symbol), step] = confidence
    return np.log(probs)


@pytest.mark.parametrize(
    ("path", "text"),
    [("A-A", "AA"), ("AAA", "A"), ("--", ""), ("AB-1", "AB1"), ("AAB-BB1", "ABB1")],
)
def test_greedy_merges_repeats_before_dropping_blanks(path: str, text: str) -> None:
    assert ctc.greedy_decode(log_probs_of(path), ALPHABET) == text


def test_log_softmax_sums_to_one_even_for_huge_logits() -> None:
    log_probs = ctc.log_softmax(np.array([[1e4, -3.0], [0.0, 2.0]], dtype=np.float32))
    assert np.exp(log_probs).sum(axis=0) == pytest.approx([1, 1])


def test_beam_equals_the_sum_over_every_path() -> None:
    rng = np.random.default_rng(7)
    log_probs = ctc.log_softmax(rng.normal(size=(4, 5)))
    expected: dict[str, float] = {}
    for path in itertools.product(range(4), repeat=5):
        merged = [k for k, _ in itertools.groupby(path) if k != 3]
        text = "".join(ALPHABET[k] for k in merged)
        probability = float(np.exp(sum(log_probs[k, t] for t, k in enumerate(path))))
        expected[text] = expected.get(text, 0.0) + probability
    found = dict(ctc.beam_decode(log_probs, ALPHABET, width=1000))
    assert found == pytest.approx(expected)


def test_beam_finds_a_text_that_no_best_path_spells() -> None:
    # "A" has two likely paths, the blank path is likelier than each, not than both.
    probs = np.array([[0.4, 0.4], [0.0, 0.0], [0.0, 0.0], [0.6, 0.6]]) + 1e-12
    assert ctc.greedy_decode(np.log(probs), ALPHABET) == ""
    assert ctc.beam_decode(np.log(probs), ALPHABET)[0][0] == "A"


def test_character_scores_follow_the_alignment() -> None:
    log_probs = log_probs_of("A-A-1")
    log_probs[:, 2] = np.log([0.55, 0.25, 0.1, 0.1])
    assert ctc.character_scores(log_probs, "AA1", ALPHABET) == pytest.approx([0.9, 0.55, 0.9])


def test_character_scores_of_a_repeat_need_a_blank_between() -> None:
    assert ctc.character_scores(log_probs_of("AA"), "AA", ALPHABET) == [0.0, 0.0]
    assert ctc.character_scores(log_probs_of("--"), "", ALPHABET) == []


def test_wrong_class_count_names_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"expected 24 classes.*got 4"):
        ctc.greedy_decode(log_probs_of("A-A"))


def test_encode_names_what_it_does_not_know() -> None:
    assert ctc.encode("B1A", ALPHABET) == [1, 2, 0]
    with pytest.raises(ValueError, match="'Q'"):
        ctc.encode("AQ", ALPHABET)
