//! The seeded defects the simulator must catch, by room. A name here is the name of a
//! `stdx::mutant!` in that room; a test of the workspace holds the two equal.
//!
//! Absent: defects outside of what the simulator runs (driver, mount, kernel adapter).

/// Name of the defect and the room it is in.
pub const MUTANTS: &[(&str, &str)] = &[
    ("mds_end_cut_unjournaled", "mds"),
    ("mds_failed_batch_ignored", "mds"),
    ("mds_fsync_not_durable", "mds"),
    ("mds_header_before_entries", "mds"),
    ("mds_lease_never_ends", "mds"),
    ("mds_lock_ignores_conflict", "mds"),
    ("mds_lock_in_reconnect", "mds"),
    ("mds_no_hold_back", "mds"),
    ("mds_no_permission_check", "mds"),
    ("mds_no_sticky", "mds"),
    ("mds_redo_not_journaled", "mds"),
    ("mds_rename_no_loop_check", "mds"),
    ("mds_rename_no_sync", "mds"),
    ("mds_retry_runs_twice", "mds"),
    ("mds_rmdir_not_empty", "mds"),
    ("mds_sole_never_shares", "mds"),
    ("mds_stale_end", "mds"),
    ("mds_unlink_ignores_opens", "mds"),
    ("mds_unlink_leaks_data", "mds"),
    ("mds_version_no_jump", "mds"),
    ("client_no_reclaim", "client"),
    ("client_retry_under_new_tid", "client"),
    ("client_shared_at_once", "client"),
    ("data_edit_moves_back", "store"),
    ("data_grow_unsynced", "store"),
    ("data_older_wins", "store"),
    ("data_redo_always", "store"),
    ("data_skip_block_sync", "store"),
    ("data_skip_folder_sync", "store"),
    ("data_skip_index_sync", "store"),
    ("data_skip_segment_sync", "store"),
    ("data_skip_tombstone", "store"),
    ("journal_damage_is_tail", "store"),
    ("journal_no_sync", "store"),
    ("journal_no_sync_before_roll", "store"),
    ("store_no_guard", "store"),
];
