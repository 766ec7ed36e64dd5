//! Opening a data folder: the stores on the real disk, and what lives of ranks are made of.
//!
//! Absent: format (crate `store`), the driver.

use crate::cluster::{Cluster, Setup};
use crate::parts::{Ballast, DataIo, Parts};
use crate::server::{Opened, Server, ServerError, ServerOptions};
use crate::stores::FolderBallast;
use mds::Rank;
use mds::config::{Prefetch, RankConfig};
use proto::cluster::ClusterMap;
use proto::storeio::StoreError;
use proto::{Incarnation, RankId};
use runtime::Config;
use runtime::config::DirPrefetch;
use std::path::Path;
use std::sync::Arc;
use stdx::Wall;
use stdx::time::{MS, SECOND};
use store::data::{DataFiles, Limits as DataLimits};
use store::disk::Disk;
use store::disk_real::RealDisk;
use store::fence::{Fence, Fenced};
use store::folder::{self, Folder};
use store::initial::ensure_rank;
use store::journal_files::{JournalFiles, JournalLimits};
use store::meta::MetaStore;
use store::registry::{self, MAP, Registry, RegistryFiles};

/// Journal kept as spare segments beyond the size at which a checkpoint starts: while one runs the
/// journal grows on.
const JOURNAL_SLACK: u64 = 256 << 20;
/// Of a journal on the smallest device.
const JOURNAL_MIN: u64 = 8 << 20;

/// What lives of ranks are made of: an open folder and its stores, which they share.
pub(crate) struct Maker {
    config: Config,
    journal_bytes: u64,
    limits: JournalLimits,
    data: Arc<DataFiles<RealDisk>>,
    ballast: Arc<FolderBallast>,
    pub(crate) place: String,
    /// A rank loads all names when it begins to serve.
    pub(crate) warm: bool,
    /// A life may end while the process lives.
    fenced: bool,
    join_key: [u8; 16],
    opened: Arc<Opened>,
}

impl Maker {
    /// Opens the stores of a folder.
    fn new(folder: Folder, place: String, options: &ServerOptions) -> Result<Self, ServerError> {
        let config = &options.config;
        let total = RealDisk::new(&folder.journal_root()).space()?.total;
        let journal_bytes = journal_size(config.journal_size, total);
        let limits = DataLimits {
            data_cache_limit: config.data_cache_limit,
            data_cache_max_filesize: config.data_cache_max_filesize,
            ..DataLimits::default()
        };
        let small = folder.record().small_file_bytes;
        let data = Arc::new(DataFiles::open(RealDisk::new(&folder.data_root()), small, limits)?);
        let ballast = Arc::new(FolderBallast::new(folder.ballast(), options.log.clone()));
        // Before anything takes space: what data reserves could be what the journal, which begins a segment, does not find.
        ballast.restore();
        let meta = Arc::new(folder.open_meta()?);
        let registry = Arc::new(RegistryFiles::open(RealDisk::new(&folder.registry_root()))?);
        expect_map(&folder, registry.as_ref())?;
        let join_key = join_key(registry.as_ref(), ballast.as_ref())?;
        Ok(Self {
            config: config.clone(),
            journal_bytes,
            limits: journal_limits(journal_bytes, total),
            data,
            ballast,
            place,
            warm: config.mds_warmup_on_start,
            fenced: options.ranks.is_some(),
            join_key,
            opened: Arc::new(Opened { meta, registry, folder }),
        })
    }

    /// What a life of a rank begins with. On a full disk it is made of what is kept back, as the cluster map is: a rank that serves is what
    /// lets people remove files.
    ///
    /// # Errors
    /// `Folder` if its incarnation cannot be noted, `Store` if its journal cannot be opened.
    pub(crate) fn parts(
        &self,
        life: (RankId, Incarnation),
        now: Wall,
        fence: &Fence,
    ) -> Result<Parts, ServerError> {
        match self.try_parts(life, now, fence) {
            Err(error) if error.lacks_room() && self.release_ballast() => self.try_parts(life, now, fence),
            other => other,
        }
    }

    fn try_parts(
        &self,
        (rank, incarnation): (RankId, Incarnation),
        now: Wall,
        fence: &Fence,
    ) -> Result<Parts, ServerError> {
        let Opened { meta, folder, .. } = self.opened.as_ref();
        if rank != RankId(0) {
            // Before the first record that says there are several.
            folder.allow_ranks()?;
            ensure_rank(meta.as_ref(), &folder.record().hash_seed, rank, now)?;
        }
        // Before anything is done in its name.
        folder.note_incarnation(incarnation)?;
        let disk = RealDisk::new(&folder.journal_root());
        let journal = JournalFiles::open_fenced(disk, rank, incarnation, self.limits, fence.clone())?;
        let (meta, data): (Arc<dyn MetaStore>, Arc<dyn DataIo>) = if self.fenced {
            let meta = Fenced::new(meta.clone(), fence.clone());
            (Arc::new(meta), Arc::new(Fenced::new(self.data.clone(), fence.clone())))
        } else {
            (meta.clone(), self.data.clone())
        };
        Ok(Parts {
            rank: Box::new(Rank::new(self.rank_config(rank, incarnation))),
            journal: Arc::new(journal),
            meta,
            data,
            ballast: Some(self.ballast.clone()),
        })
    }

    /// What a process's configuration means for a rank.
    fn rank_config(&self, rank: RankId, incarnation: Incarnation) -> RankConfig {
        let (config, record) = (&self.config, self.opened.folder.record());
        let mut made = RankConfig::new(record.fsid, record.hash_seed, incarnation);
        made.rank = rank;
        made.join_key = self.join_key;
        made.fs_epoch = record.epoch;
        made.cache_bytes = config.mds_cache_memory_limit;
        made.journal_bytes = self.journal_bytes;
        made.lease_ns = config.session_timeout * SECOND;
        made.seal_ns = config.mds_move_seal_ms * MS;
        made.limits.caps_per_client = config.mds_max_caps_per_client;
        made.limits.caps_least = config.mds_min_caps_per_client;
        made.limits.recall_caps = config.mds_recall_max_caps as usize;
        made.delegate_pct = config.mds_client_delegate_inos_pct;
        if config.mds_bal_fragment_dirs {
            (made.split_size, made.merge_size) = (config.mds_bal_split_size, config.mds_bal_merge_size);
            (made.split_reads, made.split_writes) =
                (config.mds_bal_split_rd as u32, config.mds_bal_split_wr as u32);
        } else {
            (made.split_size, made.merge_size, made.split_reads, made.split_writes) = (0, 0, 0, 0);
        }
        made.split_depth = config.mds_bal_split_bits as u8;
        made.decay_ns = config.mds_decay_halflife * SECOND;
        made.limits.random_max = f64::from(config.mds_export_ephemeral_random_max) / 1e6;
        made.complaint_ns = config.mds_op_complaint_time * SECOND;
        made.prefetch = match config.mds_dir_prefetch {
            DirPrefetch::Auto => Prefetch::Auto,
            DirPrefetch::Keyed => Prefetch::Keyed,
            DirPrefetch::Full => Prefetch::Full,
        };
        made
    }

    /// Gives the ballast up; whether that made room just now.
    pub(crate) fn release_ballast(&self) -> bool {
        self.data.keep_room(true);
        self.ballast.release() > 0
    }
}

impl Server {
    /// Opens a formatted data folder, replays its journal, serves.
    ///
    /// # Errors
    /// `Folder` for a folder that is absent, in use or of another format; `Damaged`; `Store`; `Closed` and `SeveralRanks` for the rank of
    /// a mount.
    pub fn open(dir: &Path, options: &ServerOptions) -> Result<Arc<Self>, ServerError> {
        let place = dir.display().to_string();
        let maker = Maker::new(Folder::open(dir)?, place.clone(), options)?;
        match ranks_of(maker.opened.registry.as_ref()) {
            ranks if ranks > 1 && options.ranks.is_none() => Err(ServerError::SeveralRanks(ranks)),
            _ => Self::of(maker, &place, options),
        }
    }

    /// As `open`, with as many slots as the file system has ranks, and returns when all of them serve: for whoever wants all that there
    /// is, and no client.
    ///
    /// # Errors
    /// As `open`; `Damaged` when one of them does not serve.
    pub fn open_whole(dir: &Path, options: &ServerOptions) -> Result<Arc<Self>, ServerError> {
        let place = dir.display().to_string();
        let maker = Maker::new(Folder::open(dir)?, place.clone(), options)?;
        let ranks = ranks_of(maker.opened.registry.as_ref());
        if ranks < 2 {
            return Self::of(maker, &place, options);
        }
        let options = ServerOptions { ranks: Some(ranks), ..options.clone() };
        let server = Self::of(Maker { fenced: true, ..maker }, &place, &options)?;
        server.cluster.get().map_or(Ok(()), Cluster::all_serve)?;
        Ok(server)
    }

    fn of(maker: Maker, place: &str, options: &ServerOptions) -> Result<Arc<Self>, ServerError> {
        let opened = maker.opened.clone();
        let setup = Setup {
            // The first life of this process has the number that the folder's opening began: were one left out, clients would take it
            // for a life whose end they have missed, and give up what they have not synced.
            floor: Incarnation(opened.folder.incarnation().0.saturating_sub(1)),
            slots: options.ranks,
            config: options.config.clone(),
            registry: opened.registry.clone(),
            maker,
        };
        Self::with_cluster(setup, place, options, opened)
    }
}

/// How many ranks the cluster map has; one if there is none that can be read, of which the coordinator tells.
fn ranks_of(registry: &dyn Registry) -> u16 {
    let record = registry.read(MAP).ok().flatten();
    let map = record.and_then(|record| ClusterMap::decode(&record.bytes).ok());
    map.map_or(1, |map| map.ranks.len().max(1) as u16)
}

/// A folder that may have several ranks has a map: one that is durable names a rank before `parts` makes it. Without its map the coordinator
/// would begin with that of one rank, as in a fresh folder: nobody replayed what the journals of the others had, and nothing told any more
/// that there were others. `pando fsck --repair` brings all journals into the tables first.
fn expect_map(folder: &Folder, registry: &dyn Registry) -> Result<(), ServerError> {
    if folder.allows_ranks() && registry.read(MAP)?.is_none() {
        let what = "cluster/map is missing, and there may be several ranks";
        return Err(ServerError::Damaged(what.into()));
    }
    Ok(())
}

/// What tokens of sessions are made of. On a full disk it is made of what is kept back.
fn join_key(registry: &dyn Registry, ballast: &dyn Ballast) -> Result<[u8; 16], ServerError> {
    let fresh = folder::random()?;
    let mut key = registry::join_key(registry, &fresh);
    if key == Err(StoreError::NoSpace) && ballast.release() > 0 {
        key = registry::join_key(registry, &fresh);
    }
    Ok(key?)
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
