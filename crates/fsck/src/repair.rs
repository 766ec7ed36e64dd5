//! Repair: the tail of each journal is folded into the tables, then round after round is checked and corrected
//! until a round finds nothing that can be.
//!
//! Absent: corrections themselves (`editor.rs`, `data/mend.rs`).

use crate::data::{Data, Mender};
use crate::editor::Editor;
use crate::finding::{Finding, Found, Kind, Report};
use crate::fix::{DataFix, Fix, Rest};
use crate::folder::{Folder, FsckError, incarnation_fix, io_error, sync_dir};
use crate::journal::{Journal, Overlay};
use crate::record::{DIRECTORY, FIRST_COUNTER, FLAG_BY_SLOTS};
use crate::system::System;
use crate::tables::Tables;
use crate::tree::{Node, Tree};
use crate::{RepairOptions, cluster, cross};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A repair that needs more rounds goes in circles.
const ROUNDS_MAX: usize = 64;

/// All that a check found.
pub(crate) struct Examined {
    pub(crate) found: Found,
    /// One of each rank.
    journals: Vec<Journal>,
    overlay: Overlay,
    /// Ranks that live or lived.
    ranks: BTreeSet<u16>,
    /// No life of a rank had a higher one, as far as is known.
    incarnation: u64,
    tree: Tree,
    data: Data,
    /// Transactions of several ranks that a start ends.
    undecided: usize,
}

impl Examined {
    /// The report, unless a part of it has to wait.
    pub(crate) fn judged(self, dir: &Path) -> Result<Report, FsckError> {
        match self.undecided {
            0 => Ok(self.found.report),
            count => Err(undecided(dir, count, self.found.report)),
        }
    }
}

fn undecided(dir: &Path, count: usize, report: Report) -> FsckError {
    FsckError::Undecided { dir: dir.into(), count, report: Box::new(report) }
}

/// Looks at everything.
pub(crate) fn examine(folder: &mut Folder, tables: &Tables) -> Result<Examined, FsckError> {
    let mut found = Found::default();
    folder.check(&mut found);
    tables.check_pages(&mut found);
    let folder = &*folder;
    let system = System::read(tables, &mut found);
    let map = cluster::check(folder, &mut found)?;
    let newest = system.newest();
    let (journals, overlay) = Journal::read_all(folder, system, &mut found)?;
    let lives = journals.iter().map(|journal| journal.incarnation).chain([newest]);
    let incarnation = lives.max().unwrap_or(0);
    incarnation_fix(folder, incarnation, &mut found);
    let incarnation = incarnation.max(folder.incarnation.unwrap_or(0));
    let mut ranks: BTreeSet<u16> = overlay.system.ranks.keys().copied().collect();
    ranks.extend(map.iter().flat_map(cluster::Map::made));
    let mut tree = Tree::walk(folder, tables, &overlay, &mut found);
    cross::check(folder, tables, &overlay, &ranks, &mut tree, &mut found);
    let data = Data::check(folder, &overlay, &tree, &mut found)?;
    // A journal that has to be cut off is the end of them, too.
    let cut = journals.iter().any(|journal| journal.lost.is_some());
    let undecided = if cut { 0 } else { overlay.undecided.len() };
    if undecided > 0 {
        // A file may have left one rank and not have come to the other. What is damage in any case is told: it may be why no server ends
        // the transactions.
        found.keep_what_cannot_follow();
    }
    Ok(Examined { found, journals, overlay, ranks, incarnation, tree, data, undecided })
}

/// Repairs the folder.
pub(crate) fn repair(dir: &Path, options: &RepairOptions) -> Result<Report, FsckError> {
    let mut folder = Folder::open(dir)?;
    let tables = Tables::new(&folder);
    let first = examine(&mut folder, &tables)?;
    let unreadable = |finding: &&Finding| finding.kind == Kind::EnvironmentUnreadable;
    if let Some(finding) = first.found.report.findings.iter().find(unreadable) {
        let what = format!("{}: {}", finding.place, finding.detail);
        let report = Box::new(first.found.report);
        return Err(FsckError::EnvironmentUnreadable { dir: dir.into(), what, report });
    }
    // What is not there would be taken for lost: names without data, data without names.
    let foreign = |finding: &&Finding| finding.kind == Kind::PartForeign;
    if let Some(finding) = first.found.report.findings.iter().find(foreign) {
        return Err(FsckError::PartForeign { dir: dir.into(), part: finding.place.clone() });
    }
    let lost = first.journals.iter().find_map(|journal| journal.lost.clone());
    if let Some(what) = lost.filter(|_| !options.cut_damaged_journal) {
        let report = Box::new(first.found.report);
        return Err(FsckError::JournalDamaged { dir: dir.into(), what, report });
    }
    if first.undecided > 0 {
        return Err(mend_what_waits_for_none(&mut folder, &tables, first)?);
    }
    if first.found.fixes.is_empty() {
        return Ok(first.found.report);
    }
    rewrite(&tables, &first.found.fixes)?;
    fold(&folder, &tables, &first)?;
    let before = first.found.report;
    let mut last: Option<Report> = None;
    for _ in 0..ROUNDS_MAX {
        let examined = examine(&mut folder, &tables)?;
        let report = &examined.found.report;
        let same = last
            .as_ref()
            .is_some_and(|last| (&last.findings, &last.notes) == (&report.findings, &report.notes));
        if examined.found.fixes.is_empty() || same {
            return Ok(finish(before, examined.found.report));
        }
        correct(&folder, &tables, &examined)?;
        last = Some(examined.found.report);
    }
    let examined = examine(&mut folder, &tables)?;
    Ok(finish(before, examined.found.report))
}

/// Nothing could be written to these otherwise.
fn rewrite(tables: &Tables, fixes: &[Fix]) -> Result<(), FsckError> {
    for fix in fixes {
        if let Fix::Rewrite { environment } = fix {
            tables.rewrite(*environment)?;
        }
    }
    Ok(())
}

/// Puts right what may keep a server from starting, which alone ends the transactions: journals are not folded in before, and replayed
/// from where they were. Returns what to say.
fn mend_what_waits_for_none(
    folder: &mut Folder,
    tables: &Tables,
    first: Examined,
) -> Result<FsckError, FsckError> {
    let (dir, count) = (folder.root.clone(), first.undecided);
    if first.found.fixes.is_empty() {
        return Ok(undecided(&dir, count, first.found.report));
    }
    rewrite(tables, &first.found.fixes)?;
    let mut editor = Editor::open(folder, tables, next_ino(&first))?;
    for fix in &first.found.fixes {
        editor.apply(fix, &|_, _| None)?;
    }
    for journal in &first.journals {
        let next = first.overlay.system.counter_of(journal.rank).unwrap_or(FIRST_COUNTER);
        editor.start_at(journal.rank, journal.from, next);
    }
    editor.commit()?;
    let after = examine(folder, tables)?.found.report;
    Ok(undecided(&dir, count, finish(first.found.report, after)))
}

/// The report of a repair: what is left, and what is not there any more.
fn finish(before: Report, mut after: Report) -> Report {
    let left: BTreeSet<(Kind, &str)> =
        after.findings.iter().chain(&after.notes).map(|f| (f.kind, f.place.as_str())).collect();
    let is_gone = |f: &Finding| !left.contains(&(f.kind, f.place.as_str()));
    // What a crash may leave was no error, so that its removal corrects none.
    let tidied = before.notes.iter().filter(|note| is_gone(note)).count() as u64;
    let fixed: Vec<Finding> = before.findings.into_iter().filter(is_gone).collect();
    after.tidied = tidied + before.more_notes.saturating_sub(after.more_notes);
    after.fixed = fixed;
    after.more_fixed = before.more.saturating_sub(after.more);
    after.journal_operations = before.journal_operations;
    after
}

/// Makes durable what was read: a killed server may have left it to the system's memory, and the checkpoint is about to move past
/// what the journal has of it.
fn settle(folder: &Folder, journals: &[Journal]) -> Result<(), FsckError> {
    let journals = journals.iter().map(|journal| folder.journal_of(journal.rank));
    let parts: Vec<PathBuf> = [folder.data_root.join("data")].into_iter().chain(journals).collect();
    for part in &parts {
        let entries = match fs::read_dir(part) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(io_error(part)(error)),
        };
        for entry in entries {
            let path = entry.map_err(io_error(part))?.path();
            let synced = File::open(&path).and_then(|file| file.sync_all());
            synced.map_err(io_error(&path))?;
        }
        sync_dir(part)?;
    }
    Ok(())
}

/// Writes the journal's tail into the stores, so that no replay undoes a correction.
fn fold(folder: &Folder, tables: &Tables, examined: &Examined) -> Result<(), FsckError> {
    let Examined { journals, overlay, data, .. } = examined;
    settle(folder, journals)?;
    Mender::new(data).redo(data, &overlay.redo)?;
    let mut positions = BTreeMap::new();
    for journal in journals {
        let position = if journal.is_unusable() { journal.begin_anew(folder)? } else { journal.end };
        positions.insert(journal.rank, position);
    }
    let mut editor = Editor::open(folder, tables, next_ino(examined))?;
    editor.fold(overlay, &positions);
    editor.commit()?;
    for journal in journals.iter().filter(|journal| journal.is_unusable()) {
        journal.remove_old(folder)?;
    }
    Ok(())
}

/// A number of rank 0 that no inode has or had.
fn next_ino(examined: &Examined) -> u64 {
    let counter = examined.overlay.system.counter_of(0).unwrap_or(FIRST_COUNTER).max(FIRST_COUNTER);
    counter.max(examined.tree.highest.get(&0).map_or(0, |highest| highest + 1))
}

/// Carries out what one round asks for first.
fn correct(folder: &Folder, tables: &Tables, examined: &Examined) -> Result<(), FsckError> {
    let Examined { found, tree, data, .. } = examined;
    let first = found.fixes.iter().map(Fix::tier).min();
    let fixes = found.fixes.iter().filter(|fix| Some(fix.tier()) == first);
    let rest = |ino, generation| match tree.places(ino) {
        [] if tree.lists(ino) => Some(Rest::Directory),
        [] => data.extent((ino, generation)).map(Rest::File),
        _ => None,
    };
    let mut editor = Editor::open(folder, tables, next_ino(examined))?;
    for fix in fixes {
        editor.apply(fix, &rest)?;
    }
    let data_fixes: Vec<DataFix> = std::mem::take(&mut editor.data);
    let forget_map = editor.forget_map;
    editor.commit()?;
    if forget_map {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let by_slots = |node: &Node| node.kind == DIRECTORY && node.flags & FLAG_BY_SLOTS != 0;
        let slots_used = tree.nodes.iter().any(by_slots);
        cluster::write_first(folder, &examined.ranks, examined.incarnation, now, slots_used)?;
    }
    Mender::new(data).apply(&data_fixes)
}
