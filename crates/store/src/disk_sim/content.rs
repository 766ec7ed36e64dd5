//! The bytes of one simulated file, the steps that change them, and what a crash makes of both.
//!
//! Absent: names, handles, errors.

use std::collections::BTreeMap;
use std::sync::Arc;
use stdx::Prng;

/// Space is counted in pages.
pub(super) const PAGE: u64 = 4096;
/// What the medium writes whole.
const SECTOR: u64 = 512;

type Page = Arc<[u8; PAGE as usize]>;

/// One change of a file.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Write { offset: u64, bytes: Arc<[u8]> },
    Len { old: u64, len: u64 },
    Allocate { offset: u64, len: u64 },
    Punch { offset: u64, len: u64 },
}

impl Step {
    pub(super) fn write(offset: u64, bytes: &[u8]) -> Self {
        Self::Write { offset, bytes: bytes.into() }
    }

    /// The bytes whose content it may change.
    fn range(&self) -> (u64, u64) {
        match *self {
            Self::Write { offset, ref bytes } => (offset, offset + bytes.len() as u64),
            Self::Len { old, len } => (len.min(old), old),
            Self::Punch { offset, len } => (offset, offset.saturating_add(len)),
            Self::Allocate { .. } => (0, 0),
        }
    }
}

/// The content of a file: sparse pages. `None` is reserved space, which reads as zeros and is a hole.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pages: BTreeMap<u64, Option<Page>>,
    len: u64,
}

impl Content {
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Pages that take space.
    pub(super) fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Pages that `step` would add.
    pub(super) fn new_pages(&self, step: &Step) -> u64 {
        let (from, to) = match *step {
            Step::Write { .. } => step.range(),
            Step::Allocate { offset, len } => (offset, offset + len),
            Step::Len { .. } | Step::Punch { .. } => return 0,
        };
        if to <= from {
            return 0;
        }
        let (first, last) = (from / PAGE, (to - 1) / PAGE);
        last - first + 1 - self.pages.range(first..=last).count() as u64
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let len = (buf.len() as u64).min(self.len.saturating_sub(offset)) as usize;
        buf[..len].fill(0);
        let end = offset + len as u64;
        if len == 0 {
            return 0;
        }
        for (number, page) in self.pages.range(offset / PAGE..=(end - 1) / PAGE) {
            let Some(page) = page else { continue };
            let (from, to) = ((number * PAGE).max(offset), ((number + 1) * PAGE).min(end));
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&page[(from % PAGE) as usize..][..(to - from) as usize]);
        }
        len
    }

    pub(super) fn apply(&mut self, step: &Step) {
        match *step {
            Step::Write { offset, ref bytes } => {
                self.put(offset, bytes);
                self.len = self.len.max(offset + bytes.len() as u64);
            }
            Step::Len { len, .. } => self.set_len(len),
            Step::Allocate { offset, len } => {
                for number in offset / PAGE..(offset + len).div_ceil(PAGE) {
                    self.pages.entry(number).or_default();
                }
            }
            Step::Punch { offset, len } => self.punch(offset, offset.saturating_add(len)),
        }
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        while at < end {
            let to = ((at / PAGE + 1) * PAGE).min(end);
            let part = &bytes[(at - offset) as usize..(to - offset) as usize];
            let page = self.pages.entry(at / PAGE).or_default();
            let page = page.get_or_insert_with(|| Arc::new([0; PAGE as usize]));
            if page[(at % PAGE) as usize..][..part.len()] != *part {
                Arc::make_mut(page)[(at % PAGE) as usize..][..part.len()].copy_from_slice(part);
            }
            at = to;
        }
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            drop(self.pages.split_off(&len.div_ceil(PAGE)));
            self.zero(len, len.next_multiple_of(PAGE));
        }
        self.len = len;
    }

    fn punch(&mut self, from: u64, to: u64) {
        let (first, last) = (from.div_ceil(PAGE), to / PAGE);
        if first >= last {
            self.zero(from, to);
            return;
        }
        let mut tail = self.pages.split_off(&first);
        self.pages.append(&mut tail.split_off(&last));
        self.zero(from, first * PAGE);
        self.zero(last * PAGE, to);
    }

    /// Zeros in a range that lies within two pages at most; missing pages stay missing.
    fn zero(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        for (number, page) in self.pages.range_mut(from / PAGE..=(to - 1) / PAGE) {
            if let Some(page) = page {
                let (a, b) = ((number * PAGE).max(from), ((number + 1) * PAGE).min(to));
                Arc::make_mut(page)[(a - number * PAGE) as usize..(b - number * PAGE) as usize].fill(0);
            }
        }
    }

    pub(super) fn flip(&mut self, bit: u64) -> bool {
        let at = bit / 8;
        if at >= self.len {
            return false;
        }
        let page = self.pages.entry(at / PAGE).or_default();
        let page = page.get_or_insert_with(|| Arc::new([0; PAGE as usize]));
        Arc::make_mut(page)[(at % PAGE) as usize] ^= 1 << (bit % 8);
        true
    }

    /// As `lseek`: the end of the file is a hole, nothing is found at or past it.
    pub(super) fn seek(&self, offset: u64, hole: bool) -> Option<u64> {
        if offset >= self.len {
            return None;
        }
        let mut number = offset / PAGE;
        while number * PAGE < self.len {
            let is_data = matches!(self.pages.get(&number), Some(Some(_)));
            if is_data != hole {
                return Some(offset.max(number * PAGE));
            }
            number += 1;
        }
        hole.then_some(self.len)
    }

    /// Becomes `current`, from which it differs by `steps` only.
    pub(super) fn catch_up(&mut self, current: &Self, steps: &[Step]) {
        let whole = steps.iter().any(|step| !matches!(step, Step::Write { .. }));
        if whole {
            *self = current.clone();
            return;
        }
        for step in steps {
            let (from, to) = step.range();
            if from >= to {
                continue;
            }
            for (number, page) in current.pages.range(from / PAGE..=(to - 1) / PAGE) {
                self.pages.insert(*number, page.clone());
            }
        }
        self.len = current.len;
    }

    fn sector(&self, number: u64) -> [u8; SECTOR as usize] {
        let mut bytes = [0; SECTOR as usize];
        if let Some(Some(page)) = self.pages.get(&(number * SECTOR / PAGE)) {
            bytes.copy_from_slice(&page[(number * SECTOR % PAGE) as usize..][..SECTOR as usize]);
        }
        bytes
    }
}

/// What the medium holds after a crash: `durable` plus what chance kept of `steps`.
pub(super) fn after_crash(durable: &Content, steps: &[Step], prng: &mut Prng) -> Content {
    let mode = prng.below(8);
    let metadata = match mode {
        0 => 0,
        1 => steps.len(),
        _ => prng.index(steps.len() + 1),
    };
    let mut after = durable.clone();
    let mut touched: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, step) in steps.iter().enumerate() {
        let (from, to) = step.range();
        if from < to {
            let last = (to - 1).min(longest(durable, steps)) / SECTOR;
            (from / SECTOR..=last).for_each(|sector| touched.entry(sector).or_default().push(index));
        }
        match step {
            _ if index >= metadata => {}
            Step::Write { offset, bytes } => after.len = after.len.max(offset + bytes.len() as u64),
            Step::Len { .. } | Step::Allocate { .. } | Step::Punch { .. } => after.apply(step),
        }
    }
    let len = after.len;
    for (sector, indices) in touched {
        let bytes = sector_after(durable.sector(sector), sector, &indices, steps, metadata, mode, prng);
        if sector * SECTOR < len && bytes != after.sector(sector) {
            after.put(sector * SECTOR, &bytes);
        }
    }
    after.len = after.len.max(len);
    after.set_len(len);
    drop(after.pages.split_off(&len.div_ceil(PAGE)));
    after.zero(len, len.next_multiple_of(PAGE));
    after
}

fn longest(durable: &Content, steps: &[Step]) -> u64 {
    let ends = steps.iter().map(|step| match step {
        Step::Len { old, len } => (*old).max(*len),
        Step::Write { .. } => step.range().1,
        Step::Allocate { .. } | Step::Punch { .. } => 0,
    });
    ends.max().unwrap_or(0).max(durable.len)
}

/// One of the contents the sector had: the writes up to a random one, cuts and punches that survived.
fn sector_after(
    mut bytes: [u8; SECTOR as usize],
    sector: u64,
    indices: &[usize],
    steps: &[Step],
    metadata: usize,
    mode: u64,
    prng: &mut Prng,
) -> [u8; SECTOR as usize] {
    let writes = indices.iter().filter(|index| matches!(steps[**index], Step::Write { .. })).count();
    let mut left = match mode {
        0 => 0,
        1 => writes,
        _ => prng.index(writes + 1),
    };
    for index in indices {
        let (from, to) = steps[*index].range();
        let (start, end) = (sector * SECTOR, (sector + 1) * SECTOR);
        let (a, b) = (from.max(start), to.min(end));
        let part = (a - start) as usize..(b.max(a) - start) as usize;
        match &steps[*index] {
            Step::Write { offset, bytes: data } if left > 0 => {
                left -= 1;
                bytes[part].copy_from_slice(&data[(a - offset) as usize..(b - offset) as usize]);
            }
            Step::Write { .. } => {}
            // A cut that did not survive: what was written behind it went to blocks nobody names.
            Step::Len { .. } | Step::Allocate { .. } | Step::Punch { .. } if *index >= metadata => break,
            Step::Len { .. } | Step::Allocate { .. } | Step::Punch { .. } => bytes[part].fill(0),
        }
    }
    bytes
}
