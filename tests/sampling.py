"""Which laws run on which methods where not all run on all: every entry under some laws, every law on some entries.

A law takes one entry of `tiny.ALL` in so many, and neighbouring laws begin at neighbouring entries. It depends on
names and their order alone, so that every machine and every run of a commit makes the same one.
"""

from __future__ import annotations

import tiny

# law -> of how many entries one is taken: the more a law costs, the fewer
LAWS = {
    "test_the_model_its_results_are_about_improves": 14,
    "test_same_seed_same_numbers_other_seed_others": 7,
    "test_the_order_in_which_silos_are_served_is_irrelevant": 7,
    "test_names_of_silos_are_irrelevant": 14,
    "test_partial_participation": 14,
    "test_the_learning_rate_of_a_round_is_the_scheduled_one_everywhere": 7,
    "test_bad_updates_are_left_out_named_and_counted": 7,
    "test_a_silo_that_fails_half_way_remembers_nothing_of_it": 7,
    "test_engines_agree_to_the_last_bit": 13,
    "test_a_crash_at_any_stage_and_resume_gives_the_same_numbers": 13,
    "test_any_flaw_in_what_a_part_attaches_is_that_silos_failure": 6,
    "test_bytes_follow_from_the_declaration": 14,
    "test_on_tiny_silos_the_model_moves_or_the_method_is_refused": 13,
    "test_every_setting_changes_something_or_is_refused": 8,
    "test_every_method_learns_every_task": 14,
    "test_engines_agree_on_every_task": 13,
    "test_a_crash_and_resume_on_every_task": 13,
    "test_a_silo_may_join_a_run_under_way": 7,
    "test_a_recorded_step_trains_every_silo": 7,
}


# few laws are about methods with one silo, without training or without a shared model
RARE = ("fedproto(share_model=false)", "clip-zero-shot", "clip-lora", "clip-adapter", "vit-central", "local")
RARE += ("clip-per-domain",)


# where a law takes longest, by far: FedAG has a dozen settings, and each is two runs around CLIP
LONGEST = {("test_every_setting_changes_something_or_is_refused", name) for name in ("fedag", "fedgcr")}


def chosen(law: str, how: str) -> bool:
    if (law, how) in LONGEST:
        return False
    if how in RARE and law == "test_same_seed_same_numbers_other_seed_others":
        return True
    return (tiny.ALL.index(how) + list(LAWS).index(law)) % LAWS[law] == 0
