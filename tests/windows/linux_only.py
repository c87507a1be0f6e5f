"""Tests of other rooms that can't run on Windows, each with its reason; tests/conftest.py skips them there."""

from __future__ import annotations

BASH = "plays a program of Linux with a shell script"
FOLDERS = "makes an environment with the folders of Linux"
FIFOS = "makes FIFOs, links and names that only Linux has"
LINUX = "is about a rule or a program of Linux"
NEWLINES = "compares output with the line ends of Linux"
SOURCES = "reads the sources, which are the same everywhere"
SIZES = "counts on the sizes of the Linux locks"
VALUES = "works on values alone, which are the same everywhere; under Wine every test costs a tenth of a second"
SLOW = "takes minutes under Wine; the crash points are tried one by one in tests/core and test_repair.py"

REASONS = {
    "tests/core/test_data_library.py::test_a_file_that_was_given_its_old_time_back_is_hashed_again": (
        "counts on the time of the last change of a file's facts, which Windows does not tell"
    ),
    "tests/core/test_files.py::test_a_file_of_two_names_counts_once_and_a_link_counts_where_files_are_kept_elsewhere": (
        "counts names of a file, which a folder of Windows does not tell, and links, which Wine does not follow"
    ),
    "tests/core/test_index_faults.py::test_a_run_of_any_name_is_listed": "names a folder as Linux does",
    "tests/core/test_journal_faults.py": "reads where open files are as Linux tells",
    "tests/core/test_one_home.py": SOURCES,
    "tests/core/test_placement.py::test_linux_has_no_such_rule": LINUX,
    "tests/core/test_hostile_output.py": "gives files and folders the names of Linux",
    "tests/core/test_private.py::test_no_secret_is_written_said_or_passed_on": "watches processes as Linux shows them",
    "tests/core/test_run_sweep.py": FIFOS,
    "tests/core/test_wsl.py": BASH,
    "tests/core/test_wsl_relay.py": BASH,
    "tests/engine/foreign/test_foreign_sweep.py": FIFOS,
    "tests/gui/dashboard/test_damaged.py::test_a_pipe_in_place_of_a_file_is_damage": FIFOS,
    "tests/gui/dashboard/test_run_access.py::test_deleting_a_link_promises_to_delete_the_link_only": FIFOS,
    "tests/gui/environment/test_setup_service.py::test_a_chosen_folder_gets_settings_and_the_window_and_lasts": FOLDERS,
    "tests/gui/environment/test_setup_service.py::test_files_of_an_environment_are_read_as_far_as_they_can_be": FOLDERS,
    "tests/gui/environment/test_setup_service.py::test_folders_are_judged_without_touching_them": LINUX,
    "tests/core/test_spec_migrations.py::test_a_spec_of_an_earlier_release_means_the_same": "names files as Linux does",
    "tests/core/test_supervisor.py::test_only_who_adopts_ends_the_adopted": LINUX,
    "tests/gui/runs/test_run_sweep.py": FIFOS,
    "tests/gui/test_settings_sweep.py": FIFOS,
    "tests/gui/services/test_operation.py::test_a_crash_is_explained_by_its_last_words": BASH,
    "tests/gui/services/test_operation.py::test_a_flood_of_events_leaves_the_window_its_turns": BASH,
    "tests/gui/services/test_operation.py::test_an_error_of_the_child_arrives_as_one": BASH,
    "tests/gui/services/test_operation.py::test_the_answer_arrives_and_nothing_is_left": BASH,
    "tests/gui/services/test_services.py::TestDiagnostics::test_report_names_what_helps_and_hides_what_is_private": (
        "joins the home folder and a file as Linux does"
    ),
    "tests/gui/services/test_services.py::TestDesktop::test_lock_that_comes_too_late_is_given_back": LINUX,
    "tests/gui/services/test_services.py::TestDesktop::test_sleep_lock_is_taken_once_and_given_back": LINUX,
    "tests/setup/test_breakage.py": FOLDERS,
    "tests/setup/test_checks_command.py::test_out_of_memory_though_the_gpu_is_free": FOLDERS,
    "tests/setup/test_checks_environment.py::test_a_python_that_does_not_start_is_found": FOLDERS,
    "tests/setup/test_checks_environment.py::test_broken_environments_beside_are_found_and_removed": FOLDERS,
    "tests/setup/test_checks_host.py::test_the_data_folder_is_judged_by_the_rules_of_the_system": LINUX,
    "tests/setup/test_example_model.py::test_a_failed_conversion_leaves_nothing": NEWLINES,
    "tests/setup/test_install.py::test_the_window_opens_last": LINUX,
    "tests/setup/test_install.py::test_the_example_runs_where_there_is_no_display": LINUX,
    "tests/setup/test_install.py::test_a_full_disk_is_told_first": SIZES,
    "tests/setup/test_install.py::test_the_plan_is_shown_and_nothing_is_written": SIZES,
    "tests/setup/test_install.py::test_the_window_is_started_by_the_launchers_python": BASH,
    "tests/setup/test_interpreters.py": LINUX,
    "tests/setup/test_interruptions.py": SLOW,
    "tests/setup/test_inventory.py::test_each_kind_of_change_is_seen": FOLDERS,
    "tests/setup/test_inventory.py::test_without_a_list_the_records_serve": FOLDERS,
    "tests/setup/test_proof.py::test_a_proof_that_dies_is_explained_by_its_last_words": "is about signals",
    "tests/setup/test_repair.py::test_an_intact_file_is_taken_from_another_environment": FOLDERS,
    "tests/setup/test_repair.py::test_a_file_in_the_place_of_a_folder_means_building_again": FOLDERS,
    "tests/setup/test_repair.py::test_a_file_that_a_virus_scanner_holds_is_named": FOLDERS,
    "tests/setup/test_repair.py::test_a_lost_permission_comes_back": LINUX,
    "tests/setup/test_repair.py::test_environments_of_this_program_are_known_by_name": FOLDERS,
    "tests/setup/test_uninstall.py::test_what_a_chosen_folder_left_behind_goes_too": "needs two work folders",
    "tests/setup/test_sources.py::test_the_pip_that_fetches_uv_honours_the_settings": "is about names in small",
    "tests/setup/test_system_libraries.py": LINUX,
    "tests/setup/test_test_runner.py": "the runner needs the developer tools, which are locked for Linux",
    "tests/setup/test_uvtool.py": BASH,
    "tests/setup/test_wsl_install.py": BASH,
    "tests/core/test_datafmt_formats.py": VALUES,
    "tests/core/test_datafmt_guessing.py": VALUES,
    "tests/core/test_datafmt_shapes.py": VALUES,
    "tests/core/test_errors.py": VALUES,
    "tests/core/test_explain.py": VALUES,
    "tests/core/test_explain_forms.py": VALUES,
    "tests/core/test_explain_logs.py": VALUES,
    "tests/core/test_json_values.py": VALUES,
    "tests/core/test_messages.py": VALUES,
    "tests/core/test_plain_text.py": VALUES,
    "tests/core/test_planner.py": VALUES,
    "tests/core/test_spec.py": VALUES,
    "tests/core/test_verdict.py": VALUES,
    "tests/core/test_terminal.py": VALUES,
    "tests/gui/test_i18n.py": SOURCES,
    "tests/setup/test_chinese_words.py": VALUES,
    "tests/setup/test_probe_machines.py": VALUES,
    "tests/setup/test_profiles.py": VALUES,
    "tests/setup/test_progress.py": VALUES,
    "tests/setup/test_install.py::test_a_person_reads_every_part_its_time_and_the_sum": SIZES,
    "tests/setup/test_inventory.py::test_what_the_list_keeps_has_limits": NEWLINES,
    "tests/setup/test_repair.py::test_a_download_cache_that_is_damaged_too_is_passed_by": FOLDERS,
    "tests/setup/test_repair.py::test_each_file_is_as_it_was_and_a_person_reads_where_it_came_from": FOLDERS,
    "tests/setup/test_uninstall.py::test_every_part_is_named_with_what_becomes_of_it": FOLDERS,
}
"""A file or one of its tests by its id, and why it does not run on Windows."""


def reason(node_id: str) -> str | None:
    """Return why a test can't run on Windows, or None."""
    test = node_id.partition("[")[0]
    return REASONS.get(test) or REASONS.get(test.partition("::")[0])
