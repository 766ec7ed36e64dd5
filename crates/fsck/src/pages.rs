//! The pages of an environment file, looked at one by one before LMDB is let into it: LMDB trusts every offset, flag and number
//! in a page (it has no checksums), and a damaged one ends the process.
//!
//! Plain reads, from the newest meta page down. Absent: what records mean; pages that no table and no list of free pages names.

use crate::bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: u32 = 0xBEEF_C0DE;
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
const NODE_BYTES: usize = 8;
const DATABASE_BYTES: usize = 48;
const KEY_BYTES_MAX: usize = 511;
/// LMDB's cursors have no more levels.
const DEPTH_MAX: u16 = 32;
/// The root of an empty table.
const NO_ROOT: u64 = u64::MAX;
/// The server's largest map, over the smallest page.
const PAGES_MAX: u64 = (16 << 40) / 512;
const META_PAGES: u64 = 2;

const BRANCH: u16 = 1;
const LEAF: u16 = 2;
const OVERFLOW: u16 = 4;
const META: u16 = 8;
/// A node whose value is in overflow pages.
const BIG: u16 = 1;
/// A node whose value describes a table.
const TABLE: u16 = 2;

/// What of an environment can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    Good,
    /// All records can be read, but nothing written: what is wrong with the list of free pages.
    Unwritable(String),
    /// What is wrong with a page that leads to records.
    Unreadable(String),
}

/// Looks at all pages that are in use.
pub(crate) fn check(path: &Path) -> Pages {
    let mut walk = match Walk::begin(path) {
        Ok(walk) => walk,
        Err(what) => return Pages::Unreadable(what),
    };
    if let Err(what) = walk.records() {
        return Pages::Unreadable(what);
    }
    // Last, so that a free page that is in use shows as a fault of the list.
    match walk.free_pages() {
        Ok(()) => Pages::Good,
        Err(what) => Pages::Unwritable(what),
    }
}

/// A table as its parent, or the meta page, describes it.
#[derive(Clone, Copy)]
struct Root {
    flags: u16,
    depth: u16,
    entries: u64,
    page: u64,
}

impl Root {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut b = Bytes(bytes);
        b.u32()?;
        let [flags, depth] = [u16_at(bytes, 4)?, u16_at(bytes, 6)?];
        b.take(4 + 3 * 8)?;
        Some(Self { flags, depth, entries: b.u64()?, page: b.u64()? })
    }
}

struct Meta {
    page_bytes: usize,
    free: Root,
    main: Root,
    last: u64,
    txn: u64,
}

impl Meta {
    fn decode(page: &[u8]) -> Option<Self> {
        let mut b = Bytes(page.get(HEADER_BYTES..)?);
        let known = u16_at(page, 10)? == META && b.u32()? == MAGIC && b.u32()? == VERSION;
        b.take(2 * 8)?;
        let [free, main] = [b.take(DATABASE_BYTES)?, b.take(DATABASE_BYTES)?];
        let meta = Self {
            page_bytes: Bytes(free).u32()? as usize,
            free: Root::decode(free)?,
            main: Root::decode(main)?,
            last: b.u64()?,
            txn: b.u64()?,
        };
        let size = meta.page_bytes.is_power_of_two() && (512..=1 << 15).contains(&meta.page_bytes);
        (known && size && meta.last < PAGES_MAX).then_some(meta)
    }
}

/// What the nodes of a tree hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tree {
    Free,
    Main,
    Records,
}

/// One tree on the way through it.
struct Way {
    tree: Tree,
    name: String,
    depth: u16,
    entries: u64,
    /// Keys ascend from leaf to leaf.
    key: Option<Vec<u8>>,
    tables: Vec<(String, Root)>,
}

/// A node of a leaf.
struct Node<'a> {
    key: &'a [u8],
    flags: u16,
    size: usize,
    /// In the page: the value, or the number of its first page.
    stored: &'a [u8],
}

struct Walk {
    file: File,
    meta: Meta,
    /// Pages in the file: those behind them cannot be in use.
    pages: u64,
    /// One bit for each page of the file that something led to.
    seen: Vec<u64>,
}

impl Walk {
    fn begin(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        let damaged = |number: usize| format!("meta page {number} is damaged");
        let mut page = vec![0; 512];
        if bytes < 2 * page.len() as u64 {
            return Err("it is no LMDB file".to_owned());
        }
        read(&file, &mut page, 0)?;
        let first = Meta::decode(&page).ok_or_else(|| damaged(0))?;
        read(&file, &mut page, first.page_bytes as u64)?;
        let second = Meta::decode(&page).ok_or_else(|| damaged(1))?;
        if first.page_bytes != second.page_bytes {
            return Err(damaged(1));
        }
        let meta = if first.txn < second.txn { second } else { first };
        let pages = bytes / meta.page_bytes as u64;
        Ok(Self { seen: vec![0; pages.div_ceil(64) as usize], file, meta, pages })
    }

    fn records(&mut self) -> Result<(), String> {
        let main = self.tree(Tree::Main, "the main table".into(), self.meta.main)?;
        for (name, root) in main.tables {
            self.tree(Tree::Records, format!("table {name}"), root)?;
        }
        Ok(())
    }

    fn free_pages(&mut self) -> Result<(), String> {
        // The flags of this table are the environment's.
        let root = Root { flags: 0, ..self.meta.free };
        self.tree(Tree::Free, "the list of free pages".into(), root).map(drop)
    }

    fn tree(&mut self, tree: Tree, name: String, root: Root) -> Result<Way, String> {
        let mut way = Way { tree, name, depth: root.depth, entries: 0, key: None, tables: Vec::new() };
        if root.flags != 0 || root.depth > DEPTH_MAX || (root.page == NO_ROOT) != (root.depth == 0) {
            return Err(format!("{}: its root is damaged", way.name));
        }
        if root.page != NO_ROOT {
            self.page(&mut way, root.page, 1)?;
        }
        if way.entries != root.entries {
            let Way { name, entries, .. } = way;
            return Err(format!("{name}: {entries} entries instead of {}", root.entries));
        }
        Ok(way)
    }

    /// One page and what is below it. Its depth is bounded by the tree's.
    fn page(&mut self, way: &mut Way, number: u64, depth: u16) -> Result<(), String> {
        let fail = |what: &str| format!("page {number} of {}: {what}", way.name);
        self.visit(number).map_err(fail)?;
        let mut page = vec![0; self.meta.page_bytes];
        read(&self.file, &mut page, number * self.meta.page_bytes as u64)?;
        let kind = if depth == way.depth { LEAF } else { BRANCH };
        if Bytes(&page).u64() != Some(number) || u16_at(&page, 10) != Some(kind) {
            return Err(fail("it is not what should be there"));
        }
        let count = count(&page).ok_or_else(|| fail("its bounds are damaged"))?;
        let fewest = if way.tree == Tree::Free { 0 } else { usize::from(kind == BRANCH) + 1 };
        if count < fewest {
            return Err(fail("it is empty"));
        }
        if kind == LEAF {
            return self
                .leaf(way, &page, count)
                .map_err(|what| format!("page {number} of {}: {what}", way.name));
        }
        for index in 0..count {
            let child =
                child(&page, index).ok_or_else(|| format!("page {number}: node {index} is damaged"))?;
            self.page(way, child, depth + 1)?;
        }
        Ok(())
    }

    fn leaf(&mut self, way: &mut Way, page: &[u8], count: usize) -> Result<(), String> {
        for index in 0..count {
            let node = node(page, index).ok_or_else(|| format!("node {index} is damaged"))?;
            if way.key.as_deref().is_some_and(|last| !ascends(way.tree, last, node.key)) {
                return Err(format!("node {index} is out of order"));
            }
            let key = way.key.get_or_insert_default();
            key.clear();
            key.extend_from_slice(node.key);
            way.entries += 1;
            let value = match node.flags {
                BIG => self.overflow(&node, way.tree == Tree::Free)?,
                _ => None,
            };
            let known = match way.tree {
                Tree::Records => node.flags & !BIG == 0,
                Tree::Main => match Root::decode(node.stored).filter(|_| node.flags == TABLE) {
                    Some(root) => {
                        way.tables.push((String::from_utf8_lossy(node.key).into_owned(), root));
                        node.size == DATABASE_BYTES
                    }
                    None => false,
                },
                Tree::Free => {
                    node.flags & !BIG == 0 && self.list(node.key, value.as_deref().unwrap_or(node.stored))?
                }
            };
            if !known {
                return Err(format!("node {index} is of no known kind"));
            }
        }
        Ok(())
    }

    /// The overflow pages of a node; what is in them, if asked for.
    fn overflow(&mut self, node: &Node<'_>, wanted: bool) -> Result<Option<Vec<u8>>, String> {
        let number = Bytes(node.stored).u64().ok_or("a value's page has no number")?;
        let fail = |what: &str| format!("overflow page {number}: {what}");
        let size = self.meta.page_bytes as u64;
        self.visit(number).map_err(fail)?;
        let mut header = [0; HEADER_BYTES];
        read(&self.file, &mut header, number * size)?;
        let pages = Bytes(&header[12..]).u32().map_or(0, u64::from);
        let needed = (HEADER_BYTES as u64 + node.size as u64).div_ceil(size);
        if Bytes(&header).u64() != Some(number) || u16_at(&header, 10) != Some(OVERFLOW) || pages < needed {
            return Err(fail("it is not what should be there"));
        }
        for page in number + 1..number + pages {
            self.visit(page).map_err(fail)?;
        }
        if !wanted {
            return Ok(None);
        }
        let mut value = vec![0; node.size];
        read(&self.file, &mut value, number * size + HEADER_BYTES as u64)?;
        Ok(Some(value))
    }

    /// Whether an entry of the list of free pages is one.
    fn list(&mut self, key: &[u8], value: &[u8]) -> Result<bool, String> {
        let (mut k, mut v) = (Bytes(key), Bytes(value));
        let (Some(txn), true, Some(count)) = (k.u64(), k.is_empty(), v.u64()) else { return Ok(false) };
        if txn > self.meta.txn || count > v.0.len() as u64 / 8 {
            return Ok(false);
        }
        let mut above = self.meta.last.saturating_add(1);
        for _ in 0..count {
            let Some(page) = v.u64().filter(|page| (META_PAGES..above).contains(page)) else {
                return Ok(false);
            };
            above = page;
            // The file may end before free pages that were never written.
            if page < self.pages {
                self.visit(page).map_err(|what| format!("free page {page}: {what}"))?;
            }
        }
        Ok(true)
    }

    fn visit(&mut self, number: u64) -> Result<(), &'static str> {
        if number < META_PAGES || number > self.meta.last {
            return Err("there is no such page");
        }
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        let Some(seen) = self.seen.get_mut(word).filter(|_| number < self.pages) else {
            return Err("the file ends before it");
        };
        if *seen & bit != 0 {
            return Err("it is used twice");
        }
        *seen |= bit;
        Ok(())
    }
}

/// The number of nodes of a page whose bounds are sound.
fn count(page: &[u8]) -> Option<usize> {
    let [lower, upper] = [usize::from(u16_at(page, 12)?), usize::from(u16_at(page, 14)?)];
    let sound = lower >= HEADER_BYTES && lower % 2 == 0 && lower <= upper && upper <= page.len();
    sound.then(|| (lower - HEADER_BYTES) / 2)
}

/// The bytes of a page from a node on.
fn node_at(page: &[u8], index: usize) -> Option<&[u8]> {
    let offset = u16_at(page, HEADER_BYTES + 2 * index)?;
    (offset >= u16_at(page, 14)? && offset % 2 == 0).then(|| page.get(usize::from(offset)..)).flatten()
}

/// The page that a branch's node leads to.
fn child(page: &[u8], index: usize) -> Option<u64> {
    let node = node_at(page, index)?;
    let [low, high, top] = [u16_at(node, 0)?, u16_at(node, 2)?, u16_at(node, 4)?];
    let key = usize::from(u16_at(node, 6)?);
    node.get(..NODE_BYTES + key).filter(|_| key <= KEY_BYTES_MAX)?;
    Some(u64::from(low) | u64::from(high) << 16 | u64::from(top) << 32)
}

fn node(page: &[u8], index: usize) -> Option<Node<'_>> {
    let node = node_at(page, index)?;
    let size = Bytes(node).u32()? as usize;
    let [flags, key] = [u16_at(node, 4)?, u16_at(node, 6)?];
    let end = NODE_BYTES + usize::from(key);
    let stored = node.get(end..)?.get(..if flags == BIG { 8 } else { size })?;
    let key = node.get(NODE_BYTES..end).filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()))?;
    Some(Node { key, flags, size, stored })
}

fn ascends(tree: Tree, last: &[u8], key: &[u8]) -> bool {
    match tree {
        Tree::Free => Bytes(last).u64() < Bytes(key).u64(),
        Tree::Main | Tree::Records => last < key,
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}

/// Reads bytes; behind the file's end there are none.
fn read(file: &File, to: &mut [u8], at: u64) -> Result<(), String> {
    file.read_exact_at(to, at).map_err(|error| {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return format!("the file ends before {}", at + to.len() as u64);
        }
        error.to_string()
    })
}
