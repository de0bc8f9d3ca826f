"""Mutants with a name: changes of a rule that once passed the tests, each with the test that must notice it now.

`python tests/mutants/named.py [WORD...]` makes each change (or those whose title has one of the words) in a copy of the
sources, runs its test, and ends with status 1 if one passes. A change whose place is no longer in the sources is an
error: the rule was rewritten, and so must be its mutant.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import trial

LIMIT = 180.0  # seconds for one test


class Named(NamedTuple):
    title: str
    file: str  # below src/fairsilo
    old: str  # must occur exactly once
    new: str
    test: str  # below tests


FORMULAS, FEDAG, FEDGCR = "test_formulas.py", "test_fedag.py", "test_fedgcr.py"
MASK, GEOMETRY = "methods/parts/consistency_mask.py", "methods/geometry.py"
NAMED = (
    Named(
        "FPHL's mask inverted",
        GEOMETRY,
        "torch.where(counts, delta[: len(total)], 0) * weight\n        mass += counts * weight",
        "torch.where(counts, 0, delta[: len(total)]) * weight\n        mass += ~counts * weight",
        f"{FORMULAS}::test_a_masked_mean_is_over_those_whose_mask_is_set",
    ),
    Named(
        "FPHL's mask inverted, as released",
        MASK,
        "consistency(before, raised, past) > self.tau",
        "consistency(before, raised, past) <= self.tau",
        f"{FORMULAS}::test_fphl_as_released_counts_changes_that_repeat",
    ),
    Named(
        "FPHL's mask inverted, as printed",
        MASK,
        "consistency(counts[name], raised, past + 1) >= self.tau",
        "consistency(counts[name], raised, past + 1) < self.tau",
        f"{FORMULAS}::test_fphl_asks_for_more_than_tau_as_released_and_for_tau_in_the_paper",
    ),
    Named(
        "FPHL's consistency l and 1 - l swapped",
        GEOMETRY,
        "torch.where(raised, counts, rounds - counts)",
        "torch.where(raised, rounds - counts, counts)",
        f"{FORMULAS}::test_consistency_is_the_share_of_rounds_that_went_the_same_way",
    ),
    Named(
        "FAEL's distances inverted",
        GEOMETRY,
        "return torch.stack(found).cpu()",
        "return 1 / (torch.stack(found).cpu() + 1)",
        f"{FORMULAS}::test_fael_gives_more_weight_to_those_who_moved_further",
    ),
    Named(
        "FAEL's mask ignored",
        GEOMETRY,
        "if mask is not None:",
        "if False:",
        f"{FORMULAS}::test_fedheal_measures_what_the_mask_leaves",
    ),
    Named(
        "FAEL's mask inverted",
        GEOMETRY,
        "torch.where(mask[row, : len(change)], change, 0)",
        "torch.where(mask[row, : len(change)], 0, change)",
        f"{FORMULAS}::test_distances_by_hand",
    ),
    Named(
        "GRACE's diagonal counted as 7",
        GEOMETRY,
        "    others = likeness.sum(1)",
        "    likeness = likeness + 6 * torch.eye(count).to(likeness)\n    others = likeness.sum(1)",
        f"{FORMULAS}::test_agreement_weights_by_hand",
    ),
    Named(
        "align=mmd is CORAL",
        "methods/alignment.py",
        '"mmd": mmd}',
        '"mmd": coral}',
        f"{FORMULAS}::test_the_setting_chooses_the_alignment",
    ),
    Named(
        "the reference model in training mode",
        "core/silo.py",
        "        self.model.eval()\n        output = self.forward(inputs, vector)",
        "        self.model.train()\n        output = self.forward(inputs, vector)",
        f"{FORMULAS}::test_a_reference_model_is_in_evaluation_mode_and_leaves_no_trace",
    ),
    Named(
        "FedAG's tutors never stepped",
        "methods/infusion.py",
        "tutors[name].step()",
        "pass",
        f"{FEDAG}::test_the_servers_copies_of_the_silos_models_take_adams_first_step",
    ),
    Named(
        "scores of the wrong images, at the server",
        "methods/parts/domain_adapters.py",
        "alpha = scores[name][chosen] if",
        "alpha = scores[name][: len(chosen)] if",
        f"{FEDAG}::test_a_score_belongs_to_its_image",
    ),
    Named(
        "scores of the wrong images, at the silo",
        "methods/class_means.py",
        "F.cosine_similarity(features, means[labels], dim=1)",
        "F.cosine_similarity(features.flip(0), means[labels], dim=1)",
        f"{FEDAG}::test_a_silo_scores_images_in_their_order",
    ),
    Named(
        "RA's previous model is the received one",
        "methods/parts/group_prompts.py",
        "previous = features_in(silo.reference(batch.inputs, before))",
        "previous = features_in(silo.reference(batch.inputs, silo.start))",
        f"{FEDGCR}::test_features_are_contrasted_with_the_received_and_the_previous_model",
    ),
    Named(
        "RA's previous model is kept from before training",
        "methods/parts/group_prompts.py",
        'silo.memory.of(self)["previous"] = silo.model.read()',
        'silo.memory.of(self)["previous"] = silo.start',
        f"{FEDGCR}::test_features_are_contrasted_with_the_received_and_the_previous_model",
    ),
    Named(
        "FedGCR's covariance ignored",
        "methods/representations.py",
        "covariance_type=covariance",
        'covariance_type="diag"',
        f"{FEDGCR}::test_the_shape_of_a_cluster_is_the_one_that_was_asked_for",
    ),
    # survivors of earlier samples
    Named(
        "the entropy of a prediction is a mean over classes",
        "methods/batch_norms.py",
        "logits.log_softmax(1)).sum(1).mean()",
        "logits.log_softmax(1)).mean(1).mean()",
        f"{FORMULAS}::test_mean_entropy_by_hand",
    ),
    Named(
        "Tent adds up gradients",
        "methods/parts/entropy_steps.py",
        "silo.model.gradients.zero_()",
        "pass",
        f"{FORMULAS}::test_tent_forgets_the_gradient_of_the_batch_before",
    ),
    Named(
        "SAM corrects the ascent too",
        "methods/parts/sharpness_aware.py",
        "gradient(silo, batch, corrections=False)",
        "gradient(silo, batch, corrections=True)",
        f"{FORMULAS}::test_corrections_apply_once_a_step",
    ),
    Named(
        "HarmoFL's window is square in images that are not",
        "methods/spectra.py",
        "window(images.shape[-2], images.shape[-1], share)\n    return amplitude",
        "window(images.shape[-2], images.shape[-2], share)\n    return amplitude",
        f"{FORMULAS}::test_a_window_of_images_that_are_not_square",
    ),
    Named(
        "FedFV adds what it should take off",
        GEOMETRY,
        "mean - conflict * inner / square",
        "mean + conflict * inner / square",
        "test_server_formulas.py::test_fedfv_takes_off_what_points_against_an_earlier_round",
    ),
    Named(
        "fine-tuning without epochs still asks",
        "methods/parts/fine_tuning.py",
        "return self.finetune_epochs > 0",
        "return self.finetune_epochs >= 0",
        f"{FORMULAS}::test_without_epochs_nothing_is_fine_tuned",
    ),
)


def main(words: list[str]) -> int:
    trial.warm()
    chosen = [one for one in NAMED if not words or any(word.lower() in one.title.lower() for word in words)]
    wrong = 0
    with trial.copied() as copy, tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        # a test that fails on sources as they are would catch everything
        tests = list(dict.fromkeys(f"tests/{one.test}" for one in chosen))
        if trial.outcome(copy, tests, LIMIT, log) != trial.SURVIVED:
            print(log.read_text())
            print("the tests fail without any mutant")
            return 1
        for one in chosen:
            file = copy / "fairsilo" / one.file
            text = file.read_text(encoding="utf-8")
            if text.count(one.old) != 1:
                verdict = f"NOT MADE: its place occurs {text.count(one.old)} times in {one.file}"
            else:
                file.write_text(text.replace(one.old, one.new), encoding="utf-8")
                verdict = trial.outcome(copy, [f"tests/{one.test}"], LIMIT, log)
                file.write_text(text, encoding="utf-8")
            wrong += verdict != trial.CAUGHT
            print(f"{verdict:12s}{one.title}", flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} named mutants caught")
    return 1 if wrong or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
