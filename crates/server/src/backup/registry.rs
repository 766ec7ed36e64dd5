//! Records of the registry in a backup, in pieces, and what becomes of the cluster map in a file system that is restored.
//!
//! Absent: who writes the map while a server runs.

use super::BackupError;
use super::container::{ChunkWriter, Kind};
use proto::cluster::{ClusterMap, MapError, RankInfo};
use proto::{Reader, Writer};
use std::io::Write;
use std::sync::Arc;
use store::registry::{MAP, RECORD_BYTES_MAX, Record};

/// Bytes of a record in one chunk.
const PIECE_BYTES: usize = 1 << 20;

/// Writes a record.
pub(super) fn put<W: Write>(
    chunks: &mut ChunkWriter<W>,
    name: &str,
    record: &Record,
) -> Result<(), BackupError> {
    let len = record.bytes.len();
    // An empty record is one empty piece.
    for offset in (0..len.max(1)).step_by(PIECE_BYTES) {
        let mut body = Writer::new();
        body.name(name.as_bytes()).u64(record.version).u32(len as u32).u32(offset as u32);
        body.raw(&record.bytes[offset..len.min(offset + PIECE_BYTES)]);
        chunks.put(Kind::Registry, &body.0)?;
    }
    Ok(())
}

/// A record as a backup has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) name: String,
    pub(super) version: u64,
    pub(super) bytes: Vec<u8>,
}

/// A record of which not all pieces were read.
#[derive(Default)]
pub(super) struct Gathered(Option<(Whole, usize)>);

impl Gathered {
    /// Takes the next piece, of a chunk at `at`. Returns the record when it is whole.
    pub(super) fn take(&mut self, body: &[u8], at: u64) -> Result<Option<Whole>, BackupError> {
        let damaged = |what: &str| BackupError::Damaged { at, what: what.into() };
        let mut r = Reader::new(body);
        let name = str::from_utf8(r.name()?).map_err(|_| damaged("the name of a record"))?.to_owned();
        let (version, len, offset) = (r.u64()?, r.u32()? as usize, r.u32()? as usize);
        if len > RECORD_BYTES_MAX {
            return Err(damaged("the length of a record"));
        }
        let (mut whole, total) = match self.0.take() {
            None => (Whole { name: name.clone(), version, bytes: Vec::new() }, len),
            Some(begun) => begun,
        };
        let fits = (&whole.name, whole.version, total, whole.bytes.len()) == (&name, version, len, offset);
        if !fits || r.rest().len() > len - offset || (r.rest().is_empty() && len > offset) {
            return Err(damaged("a piece of a record that does not follow"));
        }
        whole.bytes.extend_from_slice(r.rest());
        if whole.bytes.len() == total {
            return Ok(Some(whole));
        }
        self.0 = Some((whole, total));
        Ok(None)
    }

    /// Fails if pieces are missing at the end, the chunk at `at`.
    pub(super) fn check_end(&self, at: u64) -> Result<(), BackupError> {
        match &self.0 {
            None => Ok(()),
            Some((whole, _)) => Err(BackupError::Damaged {
                at,
                what: format!("a part of the record {:?} is missing", whole.name),
            }),
        }
    }
}

impl Whole {
    /// The record as a restored file system begins with it. In the cluster map nobody carries a rank: none of its daemons is there.
    /// Nothing is on its way to another rank. It is one version newer, so that nobody who kept the old map takes it for that.
    pub(super) fn restored(self) -> Result<Self, BackupError> {
        if self.name != MAP {
            return Ok(self);
        }
        let damaged = |what: String| BackupError::Damaged { at: 0, what: format!("the cluster map: {what}") };
        let mut map =
            ClusterMap::decode(&self.bytes).map_err(|error: MapError| damaged(error.to_string()))?;
        if map.version != self.version {
            return Err(damaged(format!("version {}, in a record of version {}", map.version, self.version)));
        }
        let version = map.version.checked_add(1).ok_or_else(|| damaged("the last version".into()))?;
        map.version = version;
        for info in map.ranks.values_mut() {
            *info = RankInfo::failed(info.incarnation);
        }
        map.daemons.clear();
        for entry in Arc::make_mut(&mut map.entries).values_mut() {
            if entry.moving.take().is_some() {
                entry.version = version;
            }
        }
        let runs: Vec<_> = map.slots.runs().filter(|(_, slot)| slot.moving.is_some()).collect();
        for (range, mut slot) in runs {
            (slot.moving, slot.version) = (None, version);
            Arc::make_mut(&mut map.slots).set(range, slot);
        }
        Ok(Self { version, bytes: map.encode(), ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::super::container::ChunkReader;
    use super::*;
    use proto::cluster::{DaemonId, DaemonInfo, Mask, MoveId, Moving, RankState, Slot, Unit};
    use proto::{Incarnation, RankId};

    fn pieces(record: &Record) -> Vec<Vec<u8>> {
        let mut chunks = ChunkWriter::begin(Vec::new(), true).expect("begin");
        put(&mut chunks, "map", record).expect("put");
        let (count, bytes) = (chunks.count(), chunks.end());
        let mut r = ChunkReader::begin(&bytes[..]).expect("begin");
        (0..count).map(|_| r.next().expect("a chunk").1.to_vec()).collect()
    }

    #[test]
    fn a_long_record_travels_in_pieces() {
        for len in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, RECORD_BYTES_MAX] {
            let record = Record { version: 7, bytes: (0..len).map(|at| (at >> 8) as u8).collect() };
            let pieces = pieces(&record);
            assert_eq!(pieces.len(), len.div_ceil(PIECE_BYTES).max(1));
            let mut gathered = Gathered::default();
            let mut whole = None;
            for piece in &pieces {
                assert!(whole.is_none(), "whole before its last piece");
                whole = gathered.take(piece, 0).expect("follows");
            }
            let whole = whole.expect("whole");
            assert!(whole == Whole { name: "map".into(), version: 7, bytes: record.bytes });
            gathered.check_end(0).expect("nothing is missing");
        }
    }

    #[test]
    fn pieces_that_do_not_follow_are_damage() {
        let pieces = pieces(&Record { version: 7, bytes: vec![1; 3 * PIECE_BYTES] });
        for order in [&[1][..], &[0, 2], &[0, 0]] {
            let mut gathered = Gathered::default();
            let taken = order.iter().try_for_each(|at| gathered.take(&pieces[*at], 9).map(|_| ()));
            assert!(matches!(taken, Err(BackupError::Damaged { at: 9, .. })), "{order:?}");
        }
        let mut gathered = Gathered::default();
        gathered.take(&pieces[0], 9).expect("the first");
        assert!(gathered.check_end(11).is_err());
        // Name, version, length, offset, and nothing behind them.
        for cut in 0..=20 {
            assert!(Gathered::default().take(&pieces[0][..cut], 9).is_err(), "{cut}");
        }
    }

    #[test]
    fn in_a_restored_map_nobody_lives_and_nothing_moves() {
        let mut map = ClusterMap::first();
        (map.version, map.max_mds) = (12, 2);
        (map.last_incarnation, map.last_daemon, map.last_move) = (Incarnation(5), DaemonId(3), MoveId(4));
        map.made = Mask::NONE.with(RankId(0)).with(RankId(1));
        map.daemons.insert(DaemonId(3), DaemonInfo { name: "a".into() });
        let state = RankState::Active;
        map.ranks.insert(RankId(0), RankInfo { state, incarnation: Incarnation(4), daemon: DaemonId(3) });
        map.ranks.insert(RankId(1), RankInfo::failed(Incarnation(5)));
        let moving = Some(Moving { id: MoveId(4), to: RankId(1) });
        Arc::make_mut(&mut map.entries).get_mut(&Unit::ROOT).expect("there").moving = moving;
        Arc::make_mut(&mut map.slots).set(7..9, Slot { rank: RankId(0), version: 3, moving });
        let bytes = map.encode();
        let whole = |version| Whole { name: MAP.into(), version, bytes: bytes.clone() };
        let restored = whole(12).restored().expect("restored");
        assert_eq!(restored.version, 13);
        let after = ClusterMap::decode(&restored.bytes).expect("a map");
        assert!(after.daemons.is_empty() && after.ranks.values().all(|info| info.state == RankState::Failed));
        assert!(after.slots.runs().all(|(_, slot)| slot.moving.is_none()));
        assert_eq!(after.entries[&Unit::ROOT].moving, None);
        assert_eq!(
            (after.entries[&Unit::ROOT].version, after.slots.get(7).version, after.slots.get(9).version),
            (13, 13, 1)
        );
        assert_eq!((after.version, after.max_mds, after.made), (13, 2, map.made));
        assert_eq!((after.last_incarnation, after.last_move), (map.last_incarnation, map.last_move));
        assert!(whole(11).restored().is_err(), "another record's map");
        let other = Whole { name: "other".into(), version: 1, bytes: vec![1] };
        assert_eq!(other.clone().restored().expect("as it is"), other);
    }
}
