"""The verdict follows from the averages."""

import pytest

from noisewise.dynamics import Spread
from noisewise.report._report import _overall, verdict
from noisewise.report._tasks import Standing, is_tie, ranked, winner


def standing(
    loss: str,
    *,
    seeds: int = 3,
    starved: str | None = None,
    failed: tuple[str, ...] = (),
    corrected: bool = False,
    finished: bool = True,
    **measures: tuple[float, float | None],
):
    spreads = {name: Spread(*values) for name, values in measures.items()}
    model = next((spreads[name] for name in ("kept", "final") if name in spreads), None)
    spreads |= {} if model is None else {"accuracy": model}
    return Standing(loss, seeds, spreads, starved, failed, corrected, finished)


def states(text: str, *mentions: str) -> bool:
    """Whether a sentence has all of these names and numbers."""
    return all(mention in text for mention in mentions)


def sentences(*standings: Standing) -> list[str]:
    return [sentence["text"] for sentence in verdict(0, "digits", standings)]


def test_the_higher_mean_wins_by_the_difference_of_means() -> None:
    one, two = standing("ce", final=(0.80, 0.01)), standing("mae", final=(0.85, 0.01))
    assert winner([one, two]) is two
    assert sentences(one, two)[0] == "On digits, mae won: 85.0 ± 1.0 % test accuracy over 3 seeds, 5.0 points above ce (80.0 ± 1.0 %)."


def test_the_lead_is_the_difference_of_the_rounded_numbers() -> None:
    one, two = standing("ce", final=(0.7496, 0.01)), standing("mae", final=(0.8004, 0.01))
    assert states(sentences(one, two)[0], "mae won", "80.0 ± 1.0 %", "5.0 points", "ce (75.0 ± 1.0 %)")


def test_equal_accuracies_are_a_tie_even_with_one_seed() -> None:
    one, two = (standing(loss, seeds=1, final=(0.5, None)) for loss in ("ce", "mae"))
    assert is_tie([one, two])
    assert states(sentences(one, two)[0], "ce (50.0 %", "mae (50.0 %)") and "won" not in sentences(one, two)[0]


@pytest.mark.parametrize(("lead", "tie"), [(0.010, True), (0.014, True), (0.015, False)])  # √(0.01² + 0.01²) = 0.01414…
def test_a_lead_within_the_spread_of_the_seeds_is_a_tie(lead: float, tie: bool) -> None:
    one, two = standing("ce", final=(0.80, 0.01)), standing("mae", final=(0.80 + lead, 0.01))
    assert is_tie([one, two]) is tie
    assert ("won" not in sentences(one, two)[0]) is tie


def test_a_lead_with_one_seed_is_called_uncertain() -> None:
    one, two = standing("ce", seeds=1, final=(0.80, None)), standing("mae", seeds=1, final=(0.99, None))
    assert not is_tie([one, two])
    assert "one seed each" in sentences(one, two)[0]
    three = standing("gce", seeds=3, final=(0.999, 0.0001))
    assert "one seed of mae" in sentences(two, three)[0]


def test_held_out_examples_decide_without_a_test_set_and_nobody_wins_without_both() -> None:
    one, two = standing("ce", held_out=(0.5, 0.01)), standing("mae", held_out=(0.4, 0.01))
    assert winner([one, two]) is one and "held-out" in sentences(one, two)[0]
    ce, mae = (standing(loss, fitting=(0.5, 0.01)) for loss in ("ce", "mae"))
    assert winner([ce, mae]) is None
    assert all("%" not in sentences(*losses)[0] and "digits" in sentences(*losses)[0] for losses in ((ce, mae), (ce,)))


def test_runs_without_an_epoch_get_no_advice_on_a_test_set() -> None:
    assert "test set" not in sentences(standing("ce", failed=("blown up",)), standing("mae"))[0]


def test_each_loss_is_judged_by_the_model_it_kept() -> None:
    kept = standing("ce", final=(0.71, None), kept=(0.88, None), seeds=1)
    last, third = standing("mae", final=(0.85, None), seeds=1), standing("gce", final=(0.74, None), seeds=1)
    assert winner([third, last, kept]) is kept
    assert states(sentences(third, last, kept)[0], "ce won", "88.0 %", "3.0 points", "mae (85.0 %)")


def test_an_unfinished_loss_does_not_win_if_others_finished() -> None:
    begun = standing("ce", final=(0.9, None), best=(0.99, None), clean_subset=(0.3, None), finished=False)
    one, two = (standing(loss, final=(tested, None), clean_subset=(0.9, None)) for loss, tested in (("mae", 0.8), ("gce", 0.7)))
    texts = sentences(begun, one, two)
    assert winner([begun, one, two]) is one and "gce" in texts[0] and not any(text.startswith("ce ") for text in texts)
    assert winner([begun]) is begun


def test_a_lead_that_rounding_hides_is_a_tie() -> None:
    one, two = standing("ce", seeds=1, final=(0.87451, None)), standing("mae", seeds=1, final=(0.87449, None))
    assert is_tie([one, two]) and "won" not in sentences(one, two)[0]
    one, two = standing("ce", seeds=1, final=(0.8004, None)), standing("mae", seeds=1, final=(0.7996, None))
    assert states(sentences(one, two)[0], "ce (80.0 %", "mae (80.0 %)") and "points" not in sentences(one, two)[0]


def test_a_loss_without_a_comparison_does_not_win() -> None:
    tested = standing("ce", final=(0.8, None), seeds=1)
    others = (standing("mae", final=(0.7, None), seeds=1, finished=False), standing("mae", fitting=(0.7, None), seeds=1))
    for other in others:
        assert states(sentences(tested, other)[0], "digits", "ce", "80.0 %") and "won" not in sentences(tested, other)[0]
        assert len(ranked([tested, other])) == 1 and not list(_overall([[tested, other]] * 2))


def test_a_measure_that_only_an_unfinished_run_has_does_not_decide() -> None:
    one, two = (standing(loss, held_out=(share, None), seeds=1) for loss, share in (("ce", 0.8), ("mae", 0.7)))
    begun = standing("gce", final=(0.3, None), seeds=1, finished=False)
    assert states(sentences(one, two, begun)[0], "ce won", "80.0 %", "held-out")


def test_a_single_loss_is_not_called_the_one_that_memorised_most() -> None:
    (text,) = [text for text in sentences(standing("mae", seeds=1, noisy_subset=(0.041, None))) if "4.1 %" in text]
    assert states(text, "mae", "wrong labels") and "most" not in text


def test_all_losses_that_won_most_often_are_named() -> None:
    ce, mae = standing("ce", final=(0.8, 0.0)), standing("mae", final=(0.9, 0.0))
    (sentence,) = _overall([[ce, standing("mae", final=(0.7, 0.0))], [standing("ce", final=(0.6, 0.0)), mae]])
    assert states(sentence["text"], "ce and mae", "1", "of 2 comparisons")


def test_a_single_loss_does_not_win() -> None:
    (text, *_) = sentences(standing("ce", final=(0.8, 0.01)))
    assert states(text, "digits", "ce", "80.0 ± 1.0 %", "3 seeds") and "won" not in text


def test_memorised_labels_are_stated_for_the_winner_and_the_loss_that_memorised_most() -> None:
    best = standing("gce", final=(0.9, 0.0), clean_subset=(0.95, 0.0), noisy_subset=(0.03, 0.0))
    worst = standing("ce", final=(0.7, 0.0), clean_subset=(0.95, 0.0), noisy_subset=(0.60, 0.0))
    close = standing("mae", final=(0.8, 0.0), clean_subset=(0.95, 0.0), noisy_subset=(0.04, 0.0))
    assert any(states(text, "gce ", "3.0 ± 0.0 %", "95.0 ± 0.0 %") for text in sentences(best, worst))
    assert any(states(text, "ce memorised most", "60.0 ± 0.0 %") for text in sentences(best, worst))
    assert not any("memorised most" in text for text in sentences(best, close))
    corrected = standing("ce, relabelled", corrected=True, final=(0.95, 0.0), clean_subset=(0.95, 0.0), noisy_subset=(0.80, 0.0))
    texts = sentences(best, worst, corrected)
    assert any(text.startswith("ce memorised most") for text in texts), "after a correction other labels are wrong"
    assert not any("80.0" in text for text in texts)


def test_underfitting_failures_and_falling_accuracy_give_warnings() -> None:
    best = standing("gce", final=(0.9, 0.0), best=(0.9, 0.0), clean_subset=(0.95, 0.0))
    starved = standing("mae", final=(0.5, 0.0), best=(0.5, 0.0), clean_subset=(0.5, 0.0), starved="use scaled(mae, tau=2.0).")
    ended = {"final": (0.6, 0.0), "best": (0.8, 0.0), "clean_subset": (0.9, 0.0), "noisy_subset": (0.5, 0.0)}
    failed = standing("focal", failed=("the loss was not finite",), **ended)
    warnings = [sentence["text"] for sentence in verdict(0, "digits", [best, starved, failed]) if sentence["tone"] == "warning"]
    underfits, unfinished, worse = warnings
    assert states(underfits, "mae underfits", "50.0 ± 0.0 %", "95.0 %", "use scaled(mae, tau=2.0).")
    assert states(unfinished, "focal", "the loss was not finite")
    assert states(worse, "focal", "20.0 points", "memorised")


def test_a_fall_without_memorised_labels_is_not_explained_by_memorising() -> None:
    (warning,) = [
        text for text in sentences(standing("ce", final=(0.6, 0.0), best=(0.8, 0.0), clean_subset=(1.0, 0.0))) if "points" in text
    ]
    assert states(warning, "ce", "20.0 points") and "memorised" not in warning
    assert not any("points" in text for text in sentences(standing("ce", final=(0.78, 0.0), best=(0.8, 0.0), clean_subset=(1.0, 0.0))))


def test_comparisons_count_for_the_winner_and_ties_for_nobody() -> None:
    ce, mae, close = standing("ce", final=(0.80, 0.01)), standing("mae", final=(0.85, 0.01)), standing("gce", final=(0.855, 0.01))
    (sentence,) = _overall([[ce, mae], [ce, mae], [mae, close], [close]])
    assert states(sentence["text"], "mae won 2 of 3 comparisons", "1"), "a loss alone is not a comparison"
    assert not list(_overall([[mae, close], [mae, close]])) and not list(_overall([[ce, mae], [close]]))
