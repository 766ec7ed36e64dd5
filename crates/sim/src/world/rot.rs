//! Bit rot: one flipped bit anywhere in journal, data files or stored records. It is found and named, or
//! it does no harm; a wrong answer is never given.
//!
//! Absent: repair (`fsck`).

use super::{Event, Kind, Phase, Sink, World};
use crate::model::judge::Verdict;
use proto::storeio::Table;
use stdx::Prng;
use stdx::time::SECOND;

/// Requests that only look.
const READERS: [&str; 8] =
    ["lookup", "getattr", "readdir", "read", "readlink", "getxattr", "listxattr", "seek"];
/// Operations before the flip.
const WORK: u64 = 400;
/// Reads after the flip.
const READS: u64 = 400;
/// Virtual time for them.
const PATIENCE_NS: u64 = 30 * SECOND;

/// How the damage showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The system refused, with this text.
    Refused(String),
    /// Reads of the damaged place failed with EIO; everything else was right.
    Failed(u64),
    /// Every answer was right: the bit is in what nobody reads any more.
    Harmless,
}

/// One run: work, an orderly stop or a pause, the end of the process, a flipped bit, a restart, reads.
///
/// # Errors
/// A wrong answer.
pub fn bit_rot(seed: u64, sink: Option<Sink>) -> Verdict<Found> {
    let mut world = World::new(seed, WORK + 2 * READS, 0, sink);
    world.plan.clients = vec![Kind::Trusted];
    world.plan.full_disk = false;
    // Nobody keeps an idle journal from becoming idle, and nothing dies but at the end.
    (world.plan.hostile, world.plan.again) = (false, false);
    world.clients.truncate(1);
    world.clients[0] = super::slot::Slot::new(0, Kind::Trusted);
    world.faults.quiet();
    let mut rng = Prng::new(seed ^ 0xB17);
    world.begin()?;
    while world.issued < WORK {
        world.next()?;
    }
    let calls_max = std::mem::replace(&mut world.plan.calls_max, 0);
    // An idle journal says within a second how far it is durable: before that its last entries cannot be
    // told from a torn tail.
    let mut end = None;
    while end != Some(world.judge.durable_to()) {
        end = Some(world.judge.durable_to());
        let idle = world.now + 2 * SECOND;
        while world.now < idle {
            world.next()?;
        }
    }
    world.plan.calls_max = calls_max;
    let at_rest = rng.chance(1, 2);
    if at_rest {
        // Everything into the store, so that it is read back from there.
        world.plan.crashes = 0;
        world.heal();
        while world.phase != Phase::Done {
            world.next()?;
        }
    }
    world.judge.excuses.at_rest = at_rest;
    world.stop_process();
    let place = world.flip(&mut rng, !at_rest);
    world.rotten()?;
    if let Err(error) = world.restart() {
        return refused(error, &place);
    }
    // A client that only meets damage may stop asking: what it was answered until then was right.
    let (reads, patience) = (world.issued + READS, world.now + PATIENCE_NS);
    while world.issued < reads && world.now < patience {
        if let Err(error) = world.next() {
            return refused(error, &place);
        }
    }
    Ok(if world.failed_reads > 0 { Found::Failed(world.failed_reads) } else { Found::Harmless })
}

/// An error of the judge is a wrong answer; the others are refusals, which must name the place.
fn refused(error: String, place: &str) -> Verdict<Found> {
    let refusals = ["does not open", "cannot be read", "says it is damaged", "store dump"];
    if !refusals.iter().any(|refusal| error.contains(refusal)) {
        return Err(format!("flipped {place}: {error}"));
    }
    let names = place.rsplit_once(" bit").is_none_or(|(file, _)| error.contains(file));
    if names {
        Ok(Found::Refused(error))
    } else {
        Err(format!("flipped {place}, but the refusal says: {error}"))
    }
}

impl World {
    /// The process ends; whatever was written stays. Nothing is torn, because nothing was under way.
    fn stop_process(&mut self) {
        self.life = None;
        self.lives += 1;
        self.disk.kill();
        self.meta.crash();
        if let Some(session) = self.clients[0].session() {
            self.judge.embedded_died(session);
        }
        self.end_client(0);
    }

    /// Flips one bit somewhere. Returns where: a file's name, or a record.
    fn flip(&mut self, rng: &mut Prng, journal: bool) -> String {
        // A restart reads the journal only where the store does not know better.
        if journal && rng.chance(1, 2) {
            return self.flip_journal(rng);
        }
        if rng.chance(1, 4) {
            let rows = self.meta.dump(Table::Dentry).unwrap_or_default();
            let (key, _) = &rows[rng.index(rows.len())];
            if let Ok(key) = proto::storeio::StoreKey::decode(Table::Dentry, key) {
                self.meta.flip(key, rng.next_u64() as usize % 4096);
            }
            return String::new();
        }
        // Large files' blocks carry no checksum for their content: what a flipped bit there does is the device's business.
        let names: Vec<_> =
            self.disk.names().into_iter().filter(|name| !name.starts_with("data/blk/")).collect();
        for _ in 0..1000 {
            let name = &names[rng.index(names.len())];
            let bits = self.disk.content(name).map_or(0, |content| content.len() as u64 * 8);
            if bits > 0 && self.disk.flip(name, rng.below(bits)) {
                return format!("{name} bit");
            }
        }
        String::new()
    }

    /// Flips a bit of what was written to the newest segment of the journal.
    fn flip_journal(&self, rng: &mut Prng) -> String {
        const HEADER_BYTES: usize = 4096;
        let mut segments = self.disk.names().into_iter().filter(|name| {
            name.strip_prefix("journal/").is_some_and(|name| u64::from_str_radix(name, 16).is_ok())
        });
        let Some(name) = segments.next_back() else { return String::new() };
        let content = self.disk.content(&name).unwrap_or_default();
        let written: Vec<usize> = (HEADER_BYTES..content.len()).filter(|at| content[*at] != 0).collect();
        if written.is_empty() {
            return String::new();
        }
        let byte = written[rng.index(written.len())] as u64;
        self.disk.flip(&name, byte * 8 + rng.below(8));
        format!("{name} bit")
    }

    /// From here on reads may fail, and one client only reads.
    fn rotten(&mut self) -> Verdict {
        self.phase = Phase::Faults;
        self.faults.injected_io = true;
        self.judge.excuses.io = true;
        self.readers = Some(&READERS);
        self.clients[0] = super::slot::Slot::new(0, Kind::Trusted);
        self.at(self.now, Event::ClientStarts { client: 0 });
        Ok(())
    }
}
