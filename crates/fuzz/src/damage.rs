//! A script of damage done to a set of files, read from an input: 8 bytes a step (what, which file, where, how).
//!
//! Absent: the files and what must hold afterwards (the recovery targets).

use std::collections::{BTreeMap, BTreeSet};
use stdx::Prng;
use store::SimDisk;
use store::disk::{Disk, DiskFile};

/// Files by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Bytes of one step of a script.
pub const STEP_BYTES: usize = 8;
/// Steps that are executed.
const STEPS_MAX: usize = 24;
const GROWTH_MAX: usize = 9000;
const NUMBERS: &[u64] =
    &[0, 1, 23, 24, 64, 1 << 16, 1 << 17, 1 << 26, u32::MAX as u64, 1 << 56, 1 << 63, u64::MAX];

/// What differs between kinds of stores.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Names of files that may turn up.
    pub strangers: &'static [&'static str],
    /// Makes the checksum right around a place of a file.
    pub forge: fn(&str, &mut [u8], usize),
}

/// Files after a script.
#[derive(Clone, Debug)]
pub struct Damaged {
    pub files: Files,
    /// A checksum was made right over changed bytes: nothing but "no panic" can be asked for.
    pub forged: bool,
    pub removed: BTreeSet<String>,
    /// Files that hold bytes of others at the same or another place, put there on purpose.
    pub mixed: BTreeSet<String>,
}

/// Executes a script.
#[must_use]
pub fn apply(script: &[u8], original: &Files, rules: Rules) -> Damaged {
    let mut damaged =
        Damaged { files: original.clone(), forged: false, removed: BTreeSet::new(), mixed: BTreeSet::new() };
    for step in script.chunks_exact(STEP_BYTES).take(STEPS_MAX) {
        let at = u32::from_le_bytes([step[2], step[3], step[4], step[5]]) as usize;
        damaged.step(
            step[0] % 13,
            usize::from(step[1]),
            at,
            u16::from_le_bytes([step[6], step[7]]),
            original,
            rules,
        );
    }
    damaged
}

impl Damaged {
    /// What is not as it was: names, lengths, the first byte that differs.
    #[must_use]
    pub fn differences(&self, original: &Files) -> String {
        let names: BTreeSet<&String> = original.keys().chain(self.files.keys()).collect();
        let mut text = String::new();
        for name in names {
            let (was, is) = (original.get(name), self.files.get(name));
            if was != is {
                let (was, is) = (was.map_or(&[][..], Vec::as_slice), is.map_or(&[][..], Vec::as_slice));
                let at = was.iter().zip(is).position(|(a, b)| a != b).unwrap_or(was.len().min(is.len()));
                text += &format!("; {name}: {} bytes, were {}, differ from {at}", is.len(), was.len());
            }
        }
        text
    }

    fn step(&mut self, what: u8, which: usize, at: usize, how: u16, original: &Files, rules: Rules) {
        let stranger = || rules.strangers.get(usize::from(how) % rules.strangers.len().max(1)).copied();
        let Some(name) = nth(&self.files, which) else { return };
        let other = nth(original, usize::from(how >> 8));
        let source = other.as_ref().and_then(|other| original.get(other)).cloned().unwrap_or_default();
        match what {
            5 => {
                self.files.remove(&name);
                self.removed.insert(name);
                return;
            }
            8 => {
                let mut prng = Prng::new(u64::from(how));
                let bytes = (0..at % GROWTH_MAX).map(|_| prng.below(256) as u8).collect();
                self.files.extend(stranger().map(|stranger| (stranger.to_owned(), bytes)));
                return;
            }
            9 => {
                let copy = self.files.get(&name).cloned().unwrap_or_default();
                let stranger = stranger().unwrap_or_default().to_owned();
                self.mixed.insert(stranger.clone());
                self.files.insert(stranger, copy);
                return;
            }
            6 | 7 if other.as_ref() != Some(&name) => drop(self.mixed.insert(name.clone())),
            _ => {}
        }
        let Some(bytes) = self.files.get_mut(&name) else { return };
        if what == 11 {
            let before = bytes.clone();
            let at = at % (bytes.len() + 1);
            (rules.forge)(&name, bytes, at);
            self.forged |= *bytes != before;
            return;
        }
        change(bytes, what, at, how, source);
    }
}

/// A step inside one file.
fn change(bytes: &mut Vec<u8>, what: u8, at: usize, how: u16, source: Vec<u8>) {
    let len = bytes.len();
    let here = at % len.max(1);
    let end = (here + 1 + usize::from(how) % 2048).min(len);
    let mut prng = Prng::new(u64::from(how));
    match what {
        0 if len > 0 => bytes[here] ^= 1 << (how % 8),
        1 if len > 0 => bytes[here] = how as u8,
        2 => bytes.truncate(here),
        3 if len > 0 => bytes[here..end].fill(0),
        4 if len > 0 => bytes[here..end].iter_mut().for_each(|byte| *byte = prng.below(256) as u8),
        6 => {
            let end = (here + 64 * usize::from(how as u8)).min(len).min(source.len());
            if here < end {
                bytes[here..end].copy_from_slice(&source[here..end]);
            }
        }
        7 => *bytes = source,
        10 => {
            let garbage = how % 2 == 1;
            bytes.extend((0..at % GROWTH_MAX).map(|_| if garbage { prng.below(256) as u8 } else { 0 }));
        }
        12 => {
            let number = NUMBERS[usize::from(how) % NUMBERS.len()].to_le_bytes();
            let width = [2, 4, 8, 8][usize::from(how >> 8) % 4];
            bytes.iter_mut().skip(here).zip(&number[..width]).for_each(|(byte, new)| *byte = *new);
        }
        _ => {}
    }
}

fn nth(files: &Files, which: usize) -> Option<String> {
    files.keys().nth(which % files.len().max(1)).cloned()
}

/// One step of a script.
#[must_use]
pub fn step(what: u8, which: u8, at: u32, how: u16) -> Vec<u8> {
    let mut step = vec![what, which];
    step.extend_from_slice(&at.to_le_bytes());
    step.extend_from_slice(&how.to_le_bytes());
    step
}

/// Scripts with one step of each kind, and a few longer ones.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = vec![("nothing".to_owned(), Vec::new())];
    for what in 0..13_u8 {
        seeds.push((format!("step-{what:02}"), step(what, what, 4100 + 97 * u32::from(what), 259)));
        let both =
            [step(12, what, 20, u16::from(what)), step(11, what, 20, 0), step(0, what, 5000, 3)].concat();
        seeds.push((format!("number-{what:02}"), both));
        let tail = [step(2, what, 6000, 0), step(10, what, 4000, u16::from(what)), step(4, what, 4200, 99)];
        seeds.push((format!("tail-{what:02}"), tail.concat()));
    }
    seeds
}

/// A simulated disk on which these files are durable.
///
/// # Errors
/// A text; a disk without faults gives none.
pub fn disk_of(files: &Files) -> Result<SimDisk, String> {
    let disk = SimDisk::new(1);
    let text = |error: proto::storeio::StoreError| format!("the simulated disk: {error}");
    let mut folders = BTreeSet::new();
    for (name, bytes) in files {
        let file = disk.create(name).map_err(text)?;
        file.write_at(bytes, 0).map_err(text)?;
        file.sync_data().map_err(text)?;
        folders.insert(name.rsplit_once('/').map_or("", |(folder, _)| folder));
    }
    folders.into_iter().try_for_each(|folder| disk.sync_folder(folder).map_err(text))?;
    Ok(disk)
}

/// Every file of a disk.
#[must_use]
pub fn files_of(disk: &SimDisk) -> Files {
    disk.names().into_iter().filter_map(|name| disk.content(&name).map(|bytes| (name, bytes))).collect()
}
