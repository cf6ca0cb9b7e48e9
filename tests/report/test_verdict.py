"""The verdict says what the averages say, no more."""

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
    found = {name: Spread(*values) for name, values in measures.items()}
    model = next((found[name] for name in ("kept", "final") if name in found), None)
    found |= {} if model is None else {"accuracy": model}
    return Standing(loss, seeds, found, starved, failed, corrected, finished)


def sentences(*standings: Standing) -> list[str]:
    return [sentence["text"] for sentence in verdict(0, "digits", standings)]


def test_the_higher_mean_wins_by_the_difference_of_means() -> None:
    one, two = standing("ce", final=(0.80, 0.01)), standing("mae", final=(0.85, 0.01))
    assert winner([one, two]) is two
    assert sentences(one, two)[0] == "On digits, mae won: 85.0 ± 1.0 % test accuracy over 3 seeds, 5.0 points above ce (80.0 ± 1.0 %)."


def test_the_lead_is_that_of_the_numbers_as_they_are_shown() -> None:
    one, two = standing("ce", final=(0.7496, 0.01)), standing("mae", final=(0.8004, 0.01))
    assert sentences(one, two)[0].endswith("mae won: 80.0 ± 1.0 % test accuracy over 3 seeds, 5.0 points above ce (75.0 ± 1.0 %).")


def test_the_same_accuracy_is_no_lead_even_with_one_seed() -> None:
    one, two = (standing(loss, seeds=1, final=(0.5, None)) for loss in ("ce", "mae"))
    assert is_tie([one, two])
    assert sentences(one, two)[0].endswith("ce (50.0 % test accuracy) and mae (50.0 %) are level.")


@pytest.mark.parametrize(("lead", "tie"), [(0.010, True), (0.014, True), (0.015, False)])  # √(0.01² + 0.01²) = 0.01414…
def test_a_lead_within_the_spread_of_the_seeds_is_a_tie(lead: float, tie: bool) -> None:
    one, two = standing("ce", final=(0.80, 0.01)), standing("mae", final=(0.80 + lead, 0.01))
    assert is_tie([one, two]) is tie
    assert ("are level" in sentences(one, two)[0]) is tie


def test_one_seed_is_no_proof() -> None:
    one, two = standing("ce", seeds=1, final=(0.80, None)), standing("mae", seeds=1, final=(0.99, None))
    assert not is_tie([one, two])
    assert sentences(one, two)[0].endswith("With one seed each, a small lead may be chance.")
    three = standing("gce", seeds=3, final=(0.999, 0.0001))
    assert sentences(two, three)[0].endswith("With one seed of mae, a small lead may be chance.")


def test_without_a_test_set_held_out_examples_decide_and_without_these_nobody() -> None:
    one, two = standing("ce", held_out=(0.5, 0.01)), standing("mae", held_out=(0.4, 0.01))
    assert winner([one, two]) is one and "held-out" in sentences(one, two)[0]
    ce, mae = (standing(loss, fitting=(0.5, 0.01)) for loss in ("ce", "mae"))
    assert winner([ce, mae]) is None
    assert sentences(ce, mae)[0].startswith("On digits, nothing was tested")
    assert "to know which loss won" in sentences(ce, mae)[0]
    assert "won" not in sentences(ce)[0]


def test_runs_that_ended_before_their_first_epoch_are_not_asked_for_a_test_set() -> None:
    assert sentences(standing("ce", failed=("blown up",)), standing("mae"))[0] == "On digits, no run has finished an epoch."


def test_each_loss_is_judged_by_the_model_it_has() -> None:
    kept = standing("ce", final=(0.71, None), kept=(0.88, None), seeds=1)
    last, third = standing("mae", final=(0.85, None), seeds=1), standing("gce", final=(0.74, None), seeds=1)
    assert winner([third, last, kept]) is kept
    assert sentences(third, last, kept)[0].startswith(
        "On digits, ce won: 88.0 % test accuracy of the model kept, 3.0 points above mae (85.0 %)."
    )


def test_an_unfinished_loss_wins_nothing_where_others_finished() -> None:
    begun = standing("ce", final=(0.9, None), best=(0.99, None), clean_subset=(0.3, None), finished=False)
    one, two = (standing(loss, final=(tested, None), clean_subset=(0.9, None)) for loss, tested in (("mae", 0.8), ("gce", 0.7)))
    said = sentences(begun, one, two)
    assert winner([begun, one, two]) is one and "above gce" in said[0] and not any(text.startswith("ce ") for text in said)
    assert winner([begun]) is begun


def test_less_than_the_page_shows_is_no_lead() -> None:
    one, two = standing("ce", seeds=1, final=(0.87451, None)), standing("mae", seeds=1, final=(0.87449, None))
    assert is_tie([one, two]) and sentences(one, two)[0].endswith("are level.")
    one, two = standing("ce", seeds=1, final=(0.8004, None)), standing("mae", seeds=1, final=(0.7996, None))
    assert sentences(one, two)[0].endswith("ce (80.0 % test accuracy) and mae (80.0 %) are level."), "no lead of 0.0 points"


def test_a_loss_that_is_compared_with_nothing_has_won_no_comparison() -> None:
    tested = standing("ce", final=(0.8, None), seeds=1)
    others = (standing("mae", final=(0.7, None), seeds=1, finished=False), standing("mae", fitting=(0.7, None), seeds=1))
    for other in others:
        assert sentences(tested, other)[0] == "On digits, ce reached 80.0 % test accuracy."
        assert len(ranked([tested, other])) == 1 and not list(_overall([[tested, other]] * 2))


def test_what_an_unfinished_run_alone_has_does_not_decide() -> None:
    one, two = (standing(loss, held_out=(share, None), seeds=1) for loss, share in (("ce", 0.8), ("mae", 0.7)))
    begun = standing("gce", final=(0.3, None), seeds=1, finished=False)
    assert sentences(one, two, begun)[0].startswith("On digits, ce won: 80.0 % accuracy on held-out examples")


def test_a_loss_alone_does_not_memorise_most() -> None:
    assert "mae memorised 4.1 % of the wrong labels." in sentences(standing("mae", seeds=1, noisy_subset=(0.041, None)))


def test_all_that_won_most_often_are_named() -> None:
    ce, mae = standing("ce", final=(0.8, 0.0)), standing("mae", final=(0.9, 0.0))
    (sentence,) = _overall([[ce, standing("mae", final=(0.7, 0.0))], [standing("ce", final=(0.6, 0.0)), mae]])
    assert sentence["text"] == "ce and mae won 1 each of 2 comparisons."


def test_a_loss_alone_is_not_said_to_win() -> None:
    assert sentences(standing("ce", final=(0.8, 0.01)))[0] == "On digits, ce reached 80.0 ± 1.0 % test accuracy over 3 seeds."


def test_what_was_memorised_is_said_of_the_winner_and_of_whoever_memorised_clearly_more() -> None:
    best = standing("gce", final=(0.9, 0.0), clean_subset=(0.95, 0.0), noisy_subset=(0.03, 0.0))
    worst = standing("ce", final=(0.7, 0.0), clean_subset=(0.95, 0.0), noisy_subset=(0.60, 0.0))
    close = standing("mae", final=(0.8, 0.0), clean_subset=(0.95, 0.0), noisy_subset=(0.04, 0.0))
    assert "gce learned 3.0 ± 0.0 % of the wrong labels and 95.0 ± 0.0 % of the right ones." in sentences(best, worst)
    assert "ce memorised most: 60.0 ± 0.0 % of the wrong labels." in sentences(best, worst)
    assert not any("memorised most" in text for text in sentences(best, close))
    mended = standing("ce, relabelled", corrected=True, final=(0.95, 0.0), clean_subset=(0.95, 0.0), noisy_subset=(0.80, 0.0))
    said = sentences(best, worst, mended)
    assert "ce memorised most: 60.0 ± 0.0 % of the wrong labels." in said, "after a correction other labels are wrong"
    assert not any("relabelled learned" in text or "relabelled memorised" in text for text in said)


def test_underfitting_blow_ups_and_unlearning_are_warned_of() -> None:
    best = standing("gce", final=(0.9, 0.0), best=(0.9, 0.0), clean_subset=(0.95, 0.0))
    starved = standing("mae", final=(0.5, 0.0), best=(0.5, 0.0), clean_subset=(0.5, 0.0), starved="use scaled(mae, tau=2.0).")
    ended = {"final": (0.6, 0.0), "best": (0.8, 0.0), "clean_subset": (0.9, 0.0), "noisy_subset": (0.5, 0.0)}
    failed = standing("focal", failed=("the loss was not finite",), **ended)
    warnings = [sentence["text"] for sentence in verdict(0, "digits", [best, starved, failed]) if sentence["tone"] == "warning"]
    assert warnings == [
        "mae underfits: it learned 50.0 ± 0.0 % of the right labels, another loss 95.0 %. use scaled(mae, tau=2.0).",
        "focal did not finish: the loss was not finite",
        "focal ended 20.0 points below its own best epoch: it got worse while it memorised wrong labels.",
    ]


def test_without_wrong_labels_learned_a_fall_is_not_put_down_to_memorising() -> None:
    (warning,) = [text for text in sentences(standing("ce", final=(0.6, 0.0), best=(0.8, 0.0), clean_subset=(1.0, 0.0))) if "below" in text]
    assert warning == "ce ended 20.0 points below its own best epoch: stopping earlier would have been better."
    assert not any("below" in text for text in sentences(standing("ce", final=(0.78, 0.0), best=(0.8, 0.0), clean_subset=(1.0, 0.0))))


def test_comparisons_are_counted_for_whoever_won_them_and_ties_for_nobody() -> None:
    ce, mae, close = standing("ce", final=(0.80, 0.01)), standing("mae", final=(0.85, 0.01)), standing("gce", final=(0.855, 0.01))
    (sentence,) = _overall([[ce, mae], [ce, mae], [mae, close], [close]])
    assert sentence["text"] == "mae won 2 of 3 comparisons; 1 is a tie.", "a loss alone is compared with nothing"
    assert not list(_overall([[mae, close], [mae, close]])) and not list(_overall([[ce, mae], [close]]))
