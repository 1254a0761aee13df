"""Every named scenario of the control flow is a test somewhere."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[2]

SCENARIOS = """
figure5_h1_before_h0
a1_source_repeats a1_intermediate_repeats a1_both_repeat
branch_not_taken branch_yields_zero_times branch_raises optional_field_skipped partial_yield_is_impossible
on_impossible_skip_passes_on
figure4_text_frame_leaves_image_group_vacant
chunks_sliding chunks_left_context_matches_offline chunks_flush_tail chunks_drain_continue
nested_loop_inner_end_also_ends_outer next_iteration_inputs_complete_early segment_cut_changes_nothing
diamond_inside_loop
late_anchor_does_not_block unrelated_work_does_not_hold_bucket bucket_id_fixed_while_lcp_changes nested_diamonds
count_known_last count_known_first count_zero_all count_zero_one_field count_zero_unvisited_stays_idle
count_zero_waits_for_completion count_exceeded_freezes count_never_reached count_conflict_is_error
companion_nearest_wins companion_tie_is_error one_ancestor_serves_many same_event_two_groups_counts_once
facet_without_trigger_gives_no_group incomparable_paths_keep_admission_order count_join_ignores_leases_and_gate
session_gate_keeps_yield_order session_gate_releases_on_failure gate_passes_vacant_occurrence
session_gate_skips_unactivated_yield two_sessions_do_not_block session_calls_fifo
return_order_under_shuffled_transport sentence_audio_keeps_sentence_order unordered_output_keeps_activation_order
cancel_while_running cancel_in_queue cancel_after_finish cancel_twice supersede_cancels_then_admits
failed_turn_leaves_history
slow_branch_backpressure window_cannot_deadlock_ordered_input
first_delivery_fixes_replica spread_balances_activations replica_lost_none replica_lost_restart
replica_lost_restart_diverges replica_lost_continue stale_attempt_dropped duplicate_delivery_suppressed
lost_client_detaches_then_cancels resume_after_detach_is_exact
exactly_one_terminal
plan_rejects_unknown_field plan_rejects_type_mismatch plan_rejects_unfed_field plan_rejects_no_unique_anchor
plan_rejects_anchor_lost plan_rejects_indistinguishable_iterations plan_rejects_missing_count_source
plan_rejects_unreachable_node plan_rejects_join_that_never_closes plan_rejects_companion_without_trigger
plan_rejects_no_common_origin
"""


def functions_of_tests() -> dict[str, list[Path]]:
    """Files by name of the test function that they hold."""
    found: dict[str, list[Path]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for item in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name.startswith("test_"):
                found.setdefault(item.name, []).append(path)
    return found


def test_every_scenario_is_a_test() -> None:
    known = functions_of_tests()
    assert [name for name in SCENARIOS.split() if f"test_{name}" not in known] == []


def test_every_scenario_is_named_once() -> None:
    names = SCENARIOS.split()
    assert sorted(set(names)) == sorted(names)
