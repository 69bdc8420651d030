"""Every safeguard of the delivery core, how it is removed, and the tests that must fail then.

`make safeguards` removes them one at a time (`tests/remove_safeguards.py`); `test_safeguards.py` holds the list against
the code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DELIVERY = "pipeline/delivery"
UNIT = "tests/unit/test_delivery"
BROKER = "tests/integration/test_delivery"
CASES = "tests/cases/test"


@dataclass(frozen=True)
class Safeguard:
    """One thing that stands between a fault and a reader.

    Attributes:
        name: in a few words.
        file: where it is, from the root of the tree.
        text: the source that is it; there is exactly one such place in the file.
        removed: what stands there when it is gone.
        tests: every one of them must fail then.
    """

    name: str
    file: str
    text: str
    removed: str
    tests: tuple[str, ...]


SAFEGUARDS: tuple[Safeguard, ...] = (
    Safeguard(
        "identity check: offsets carry the member and its generation",
        f"{DELIVERY}/transactions.py",
        "send_offsets_to_transaction(positions, bytes(identity), self._timeout_s)",
        'send_offsets_to_transaction(positions, bytes(Identity(identity.group, -1, "")), self._timeout_s)',
        (
            f"{BROKER}_transactions.py::test_a_member_that_is_not_in_the_group_publishes_nothing",
            f"{BROKER}_groups.py::test_a_zombies_results_are_fenced",
        ),
    ),
    Safeguard(
        "identity check: who can't be fenced sends nothing",
        f"{DELIVERY}/transactions.py",
        "if not (work.identity.fenceable or work.alone):",
        "if False:",
        (f"{UNIT}_identity.py::test_generation_minus_one_or_an_empty_member_id_never_commits",),
    ),
    Safeguard(
        "identity check: who can't be fenced gets no work",
        f"{DELIVERY}/transport.py",
        "Assignment(identity, partitions) if identity.fenceable else None",
        "Assignment(identity, partitions)",
        (f"{UNIT}_transport.py::test_a_member_that_could_not_be_fenced_gets_no_work",),
    ),
    Safeguard(
        "identity check: a timer's transaction commits a position",
        f"{DELIVERY}/ordered.py",
        "if slot.number not in with_records:",
        "if False:",
        (
            f"{UNIT}_ordered.py::test_a_timer_is_a_transaction_of_its_own_with_a_position_of_its_partition",
            f"{BROKER}_groups.py::test_a_zombies_tick_is_fenced",
        ),
    ),
    Safeguard(
        "staged state: the store is written after the commit",
        f"{DELIVERY}/ordered.py",
        "        verdict, high = self._producer.run(Work(outputs, records, positions, assignment.identity))\n"
        "        for slot in worked:\n",
        "        for slot in worked:\n"
        "            slot.store.apply(changes.get(slot.number, {}), 0, now)\n"
        "        verdict, high = self._producer.run(Work(outputs, records, positions, assignment.identity))\n"
        "        for slot in worked:\n",
        (
            f"{UNIT}_ordered.py::test_state_and_position_are_applied_after_the_commit_and_only_then",
            f"{BROKER}_rules.py::test_state_is_applied_only_after_the_commit",
        ),
    ),
    Safeguard(
        "staged state: a record that fails half-way is undone",
        f"{DELIVERY}/ordered.py",
        "if not foreseen or view.writes > writes:",
        "if False:",
        (
            f"{UNIT}_ordered.py::test_a_record_that_fails_half_way_leaves_nothing_but_its_dead_letter",
            f"{BROKER}_rules.py::test_a_record_that_fails_half_way_is_undone_alone",
        ),
    ),
    Safeguard(
        "abort roll-back: a parallel stage's results are put back",
        f"{DELIVERY}/parallel.py",
        "            self._outputs = outputs + self._outputs\n",
        "",
        (f"{BROKER}_rules.py::test_an_abort_rolls_everything_back[parallel]",),
    ),
    Safeguard(
        "abort roll-back: an ordered stage's records are put back",
        f"{DELIVERY}/ordered.py",
        "entry.queue.extendleft(reversed(part.records + part.left))",
        "entry.queue.extendleft(reversed(part.left))",
        (f"{BROKER}_rules.py::test_an_abort_rolls_everything_back[ordered]",),
    ),
    Safeguard(
        "abort roll-back: an ordered stage's memory is built anew",
        f"{DELIVERY}/ordered.py",
        "                slot.logic.aborted()\n                self._reopen(slot, now)\n",
        "                slot.logic.aborted()\n                slot.view.clear()\n",
        (f"{BROKER}_rules.py::test_an_abort_rolls_everything_back[ordered]",),
    ),
    Safeguard(
        "revoke commit: what has finished is committed with the old generation",
        f"{DELIVERY}/runner.py",
        "        await self._drain()\n        await self._commit_locked()\n",
        "        await self._drain()\n",
        (
            f"{UNIT}_parallel.py::test_a_handed_back_partition_is_drained_committed_and_forgotten",
            f"{BROKER}_groups.py::test_on_revoke_work_is_drained_committed_with_the_old_generation_and_forgotten",
        ),
    ),
    Safeguard(
        "revoke: a result that comes after it is dropped",
        f"{DELIVERY}/parallel.py",
        "if self._partitions_by_tp.get(partition.tp) is partition and flight.launches == launch:",
        "if flight.launches == launch:",
        (f"{BROKER}_groups.py::test_on_revoke_work_is_drained_committed_with_the_old_generation_and_forgotten",),
    ),
    Safeguard(
        "stable start offsets",
        f"{DELIVERY}/stable_offsets.py",
        'committed = Consumer({**self._options, "isolation.level": "read_committed"})',
        'committed = Consumer({**self._options, "isolation.level": "read_uncommitted"})',
        (f"{BROKER}_transactions.py::test_open_offsets_are_waited_for[commit_transaction]",),
    ),
    Safeguard(
        "start offsets: a topic that ends before them is refused",
        f"{DELIVERY}/stable_offsets.py",
        "if answer.offset > high:",
        "if False:",
        (f"{BROKER}_transactions.py::test_a_topic_that_ends_before_the_committed_offset_ends_the_worker",),
    ),
    Safeguard(
        "read_committed",
        f"{DELIVERY}/transport.py",
        'consumer._isolation_level = "read_committed"',
        'consumer._isolation_level = "read_uncommitted"',
        (f"{BROKER}_rules.py::test_what_was_aborted_is_never_read",),
    ),
    Safeguard(
        "position chain",
        f"{DELIVERY}/runner.py",
        "if batch.start > expected:",
        "if False:",
        (
            f"{UNIT}_parallel.py::test_a_hole_between_batches_ends_the_worker",
            f"{BROKER}_exits.py::test_a_gap_in_the_chain_of_positions_ends_the_worker",
        ),
    ),
    Safeguard(
        "position chain: a batch of another assignment is dropped",
        f"{DELIVERY}/runner.py",
        "if not self._closing and batch.assignment is not None and self._current(batch.assignment):",
        "if not self._closing:",
        (f"{UNIT}_parallel.py::test_a_batch_of_another_assignment_is_dropped",),
    ),
    Safeguard(
        "whole-group check before the first commit",
        f"{DELIVERY}/runner.py",
        "self._stable_offsets.wait_for_group, self._input_topics, self._partitions, limit_s, moved\n",
        "list, self._input_topics\n",
        (f"{BROKER}_groups.py::test_nobody_commits_before_the_whole_groups_offsets_are_stable",),
    ),
    Safeguard(
        "what the producer itself has left open ends before its first transaction",
        f"{DELIVERY}/runner.py",
        "await self._own_transactions.wait_for_end(limit_s)\n",
        "pass\n",
        ("tests/integration/test_hanging_transactions.py::test_outputs_that_hang_alone_are_not_published",),
    ),
    Safeguard(
        "equal partition sets of co-partitioned topics",
        f"{DELIVERY}/transport.py",
        "if not equal_partition_sets(partitions):",
        "if False:",
        (f"{UNIT}_transport.py::test_topics_that_are_torn_apart_end_the_worker",),
    ),
    Safeguard(
        "an evicted static member ends",
        f"{DELIVERY}/transport.py",
        "if revoked and coordinator._group_instance_id and not coordinator.member_id:",
        "if False:",
        (f"{UNIT}_transport.py::test_an_evicted_static_member_ends",),
    ),
    Safeguard(
        "offset map: its check sum",
        f"{DELIVERY}/offsets.py",
        "if payload[:4] != _crc(numbers, base, topic, partition):",
        "if False:",
        (f"{UNIT}_offsets.py::test_a_map_of_another_place_marks_nothing_as_done",),
    ),
    Safeguard(
        "offset map: its bound",
        f"{DELIVERY}/offsets.py",
        "return self.unfinished < MAX_UNFINISHED and offset - self.committable < MAX_WINDOW",
        "return True",
        (f"{UNIT}_offsets.py::test_no_more_than_a_thousand_records_are_unfinished",),
    ),
    Safeguard(
        "sizes are checked before anything is produced",
        f"{DELIVERY}/runner.py",
        "            if record_bytes(output) > limit:\n",
        "            if False:\n",
        (
            f"{BROKER}_rules.py::test_what_can_not_be_handled_is_a_dead_letter_and_the_partition_goes_on[parallel-large]",
            f"{CASES}_poison_cases.py::test_kaf_09_no_body_near_the_limit_vanishes[ordered]",
        ),
    ),
    Safeguard(
        "a dead letter that is too large is cut",
        f"{DELIVERY}/runner.py",
        "return cut(letter, excess_bytes) if excess_bytes > 0 else letter",
        "return letter",
        (
            f"{UNIT}_ordered.py::test_a_dead_letter_fits_its_topic",
            f"{CASES}_poison_cases.py::test_kaf_18_a_dead_letter_over_the_limit_is_cut_and_never_dropped[parallel]",
        ),
    ),
    Safeguard(
        "a full queue holds its partition out of the fetch and never pauses it",
        f"{DELIVERY}/parallel.py",
        "self.app.consumer.held.add(tp)",
        "self.app.consumer.pause_partitions({tp})",
        (
            f"{UNIT}_never_used.py::test_what_loses_records_is_not_used[delivery/parallel.py]",
            f"{UNIT}_parallel.py::test_a_full_queue_holds_its_partition_out_of_the_fetch",
        ),
    ),
    Safeguard(
        "slots are dealt to partitions",
        f"{DELIVERY}/flights.py",
        "return max(1, self.slots // max(1, len(self.partitions)))",
        "return self.slots",
        (
            f"{UNIT}_parallel.py::test_slots_are_dealt_to_partitions",
            f"{BROKER}_rules.py::test_submit_never_waits",
        ),
    ),
    Safeguard(
        "breaker",
        f"{DELIVERY}/dead_letters.py",
        "first = trips and not self.open\n",
        "first = trips = False\n",
        (
            f"{UNIT}_dead_letters.py::test_dead_letters_in_a_row_stop_the_partition",
            f"{BROKER}_rules.py::test_a_bad_deploy_does_not_drain_the_topic_into_the_dead_letters",
        ),
    ),
    Safeguard(
        "journal of what is in flight",
        f"{DELIVERY}/journal.py",
        "crashes += state == _IN_FLIGHT",
        "crashes = 0",
        (f"{UNIT}_journal.py::test_crashes_are_counted_in_a_row",),
    ),
    Safeguard(
        "quarantine: a suspect of two crashes runs alone",
        f"{DELIVERY}/flights.py",
        "        if in_flight:\n",
        "        if False:\n",
        (f"{UNIT}_parallel.py::test_a_record_of_two_crashes_runs_alone",),
    ),
    Safeguard(
        "deadline of a handler",
        f"{DELIVERY}/parallel.py",
        "if now_s - flight.began_s > limit_s and self._is_in_hand(flight):",
        "if False:",
        (f"{UNIT}_parallel.py::test_a_handler_that_does_not_return_is_given_up",),
    ),
    Safeguard(
        "five aborts in a row end the worker",
        f"{DELIVERY}/runner.py",
        "if self._aborts_in_a_row >= MAX_ABORTS:",
        "if False:",
        (f"{BROKER}_exits.py::test_five_aborts_in_a_row_end_the_worker",),
    ),
    Safeguard(
        "a call that ignores its time-out ends the process",
        f"{DELIVERY}/transactions.py",
        "self._timeout_s + HANG_MARGIN_S,",
        "3_600.0,",
        (f"{UNIT}_transactions.py::test_offsets_that_are_never_sent_end_the_process",),
    ),
    Safeguard(
        "a lock on the data directory",
        f"{DELIVERY}/worker.py",
        "            self._wait_for_lock(self._lock)\n",
        "",
        (f"{UNIT}_directory.py::test_a_directory_that_stays_in_use_is_refused",),
    ),
    Safeguard(
        "keys are placed by murmur2",
        f"{DELIVERY}/transactions.py",
        '"partitioner": "murmur2_random",',
        '"partitioner": "consistent_random",',
        (f"{UNIT}_transactions.py::test_partitions_are_chosen_as_java_chooses_them",),
    ),
    Safeguard(
        "restore: up to the high watermark",
        "pipeline/state/changelog.py",
        'consumer = Consumer({**self._options, "isolation.level": "read_uncommitted"})',
        'consumer = Consumer({**self._options, "isolation.level": "read_committed"})',
        ("tests/integration/test_state_restore.py::test_a_restore_waits_for_what_is_open_below_the_high_watermark",),
    ),
    Safeguard(
        "restore: without what was aborted",
        "pipeline/state/changelog.py",
        '                "isolation.level": "read_committed",\n',
        '                "isolation.level": "read_uncommitted",\n',
        ("tests/integration/test_state_restore.py::test_a_restored_store_holds_what_was_committed_and_nothing_else",),
    ),
    Safeguard(
        "restore: a store that is ahead of its changelog is rebuilt",
        "pipeline/state/changelog.py",
        "        if store.applied > target:\n",
        "        if False:\n",
        ("tests/integration/test_state_restore.py::test_a_store_ahead_of_its_changelog_is_rebuilt",),
    ),
)


def without(safeguard: Safeguard, root: Path = ROOT) -> str:
    """Return the source of a safeguard's file without it.

    Raises:
        ValueError: the text that is to go is not there, or not once.
    """
    source = (root / safeguard.file).read_text(encoding="utf-8")
    if (count := source.count(safeguard.text)) != 1:
        raise ValueError(f"{safeguard.name}: its text is {count} times in {safeguard.file}")
    return source.replace(safeguard.text, safeguard.removed)


def table() -> str:
    """Return the table for people: each safeguard, where it is, and the tests that notice its absence."""
    rows = []
    for one in SAFEGUARDS:
        tests = ", ".join(f"`{test.rpartition('::')[2].partition('[')[0]}`" for test in one.tests)
        rows.append(f"| {one.name} | `{one.file}` | {tests} |")
    return "\n".join(["| safeguard | where | noticed by |", "|---|---|---|", *rows])
