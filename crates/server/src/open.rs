//! Opening a data folder: the rank and its stores on the real disk.
//!
//! Absent: format (crate `store`), the driver.

use crate::parts::{Ballast, Parts};
use crate::server::{Opened, Server, ServerError, ServerOptions};
use crate::stores::FolderBallast;
use mds::Rank;
use mds::config::{Prefetch, RankConfig};
use proto::RankId;
use runtime::Config;
use runtime::config::DirPrefetch;
use std::path::Path;
use std::sync::Arc;
use stdx::time::SECOND;
use store::data::{DataFiles, Limits as DataLimits};
use store::disk::Disk;
use store::disk_real::RealDisk;
use store::folder::Folder;
use store::journal_files::{JournalFiles, JournalLimits};

/// Journal kept as spare segments beyond the size at which a checkpoint starts: while one runs the
/// journal grows on.
const JOURNAL_SLACK: u64 = 256 << 20;
/// Of a journal on the smallest device.
const JOURNAL_MIN: u64 = 8 << 20;

/// What a process's configuration means for a rank.
fn rank_config(config: &Config, journal_bytes: u64, folder: &Folder) -> RankConfig {
    let record = folder.record();
    let mut rank = RankConfig::new(record.fsid, record.hash_seed, folder.incarnation());
    rank.fs_epoch = record.epoch;
    rank.cache_bytes = config.mds_cache_memory_limit;
    rank.journal_bytes = journal_bytes;
    rank.lease_ns = config.session_timeout * SECOND;
    rank.limits.caps_per_client = config.mds_max_caps_per_client;
    rank.limits.caps_least = config.mds_min_caps_per_client;
    rank.limits.recall_caps = config.mds_recall_max_caps as usize;
    rank.delegate_pct = config.mds_client_delegate_inos_pct;
    rank.complaint_ns = config.mds_op_complaint_time * SECOND;
    rank.prefetch = match config.mds_dir_prefetch {
        DirPrefetch::Auto => Prefetch::Auto,
        DirPrefetch::Keyed => Prefetch::Keyed,
        DirPrefetch::Full => Prefetch::Full,
    };
    rank
}

impl Server {
    /// Opens a formatted data folder, replays its journal, serves.
    ///
    /// # Errors
    /// `Folder` for a folder that is absent, in use or of another format; `Damaged`; `Store`.
    pub fn open(dir: &Path, options: &ServerOptions) -> Result<Arc<Self>, ServerError> {
        let folder = Folder::open(dir)?;
        let log = Arc::clone(&options.log);
        let record = folder.record();
        let config = &options.config;
        let journal_disk = RealDisk::new(&folder.journal_root());
        let total = journal_disk.space()?.total;
        let journal_bytes = journal_size(config.journal_size, total);
        let limits = journal_limits(journal_bytes, total);
        let journal = JournalFiles::open(journal_disk, RankId(0), folder.incarnation(), limits)?;
        let limits = DataLimits {
            data_cache_limit: config.data_cache_limit,
            data_cache_max_filesize: config.data_cache_max_filesize,
            ..DataLimits::default()
        };
        let data = DataFiles::open(RealDisk::new(&folder.data_root()), record.small_file_bytes, limits)?;
        let ballast = FolderBallast::new(folder.ballast(), log.clone());
        // Before anything takes space: what data reserves could be what the journal, which begins a segment, does not find.
        ballast.restore();
        let meta = Arc::new(folder.open_meta()?);
        let parts = Parts {
            rank: Box::new(Rank::new(rank_config(config, journal_bytes, &folder))),
            journal: Arc::new(journal),
            meta: meta.clone(),
            data: Arc::new(data),
            ballast: Some(Arc::new(ballast)),
        };
        let place = dir.display().to_string();
        Self::start(parts, &place, options, log, Some(Opened { meta, folder }))
    }
}

/// The journal's size on this device. Of a small one it takes an eighth: full size would leave no room for data, nor for
/// the ballast to come back.
fn journal_size(wanted: u64, total: u64) -> u64 {
    wanted.min((total / 8).max(JOURNAL_MIN))
}

/// A segment is a sixteenth of the journal, so that trimming gives back space often enough, within 4 to 64 MiB.
fn journal_limits(journal_size: u64, total: u64) -> JournalLimits {
    let segment_bytes = (journal_size / 16).clamp(4 << 20, 64 << 20).next_multiple_of(4096);
    let slack = JOURNAL_SLACK.min(total / 32);
    JournalLimits { segment_bytes, journal_bytes: journal_size + slack }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_fits_its_device() {
        const GIB: u64 = 1 << 30;
        let cases = [
            // Wanted, device, journal, segment, with spares.
            (GIB, 100 * GIB, GIB, 64 << 20, GIB + (256 << 20)),
            (GIB, 2 * GIB, GIB / 4, 16 << 20, GIB / 4 + GIB / 16),
            (32 << 20, GIB, 32 << 20, 4 << 20, 64 << 20),
            (GIB, 160 << 20, 20 << 20, 4 << 20, 25 << 20),
        ];
        for (wanted, total, size, segment, all) in cases {
            assert_eq!(journal_size(wanted, total), size, "{wanted} of {total}");
            let limits = journal_limits(size, total);
            assert_eq!((limits.segment_bytes, limits.journal_bytes), (segment, all), "{wanted} of {total}");
        }
    }
}
