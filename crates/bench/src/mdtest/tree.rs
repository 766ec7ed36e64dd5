//! Names of directories and items: one task's tree, as mdtest lays it out.
//!
//! Absent: file-system calls.

use super::options::Options;
use std::path::PathBuf;

/// The directory that holds everything of iteration `iteration`.
pub(super) fn top(options: &Options, iteration: u32) -> PathBuf {
    options.dir.join(format!("test-dir.{iteration}-0"))
}

/// The root of a task's tree: its own with `unique`, else the shared one.
pub(super) fn root(options: &Options, iteration: u32, task: u32) -> PathBuf {
    let tree = if options.unique { format!("mdtest_tree.{task}.0") } else { "mdtest_tree.0".to_owned() };
    top(options, iteration).join(tree)
}

/// All directories of a tree, parents first. Number i's children are i * branch + 1 and following.
pub(super) fn directories(options: &Options, root: &std::path::Path) -> Vec<PathBuf> {
    let mut all = vec![root.to_path_buf()];
    let mut level = 0..1_usize;
    for _ in 0..options.depth {
        let start = all.len();
        for parent in level.clone() {
            for child in 1..=options.branch as usize {
                let number = parent * options.branch as usize + child;
                all.push(all[parent].join(format!("mdtest_tree.0.{number}")));
            }
        }
        level = start..all.len();
    }
    all
}

/// The directories that hold items, and how many each: all, or the leaves with `leaf_only`.
pub(super) fn item_directories(options: &Options, root: &std::path::Path) -> (Vec<PathBuf>, u64) {
    let all = directories(options, root);
    let leaves = (options.branch as usize).pow(options.depth);
    let holders = if options.leaf_only { all[all.len() - leaves..].to_vec() } else { all };
    let each = match options.items_per_dir {
        0 => options.items / holders.len() as u64,
        items => items,
    };
    (holders, each)
}

/// The paths of a task's items.
pub(super) fn items(options: &Options, iteration: u32, task: u32, kind: &str) -> Vec<PathBuf> {
    let (holders, each) = item_directories(options, &root(options, iteration, task));
    let mut paths = Vec::with_capacity(holders.len() * each as usize);
    for (holder, dir) in holders.iter().enumerate() {
        for i in 0..each {
            paths.push(dir.join(format!("{kind}.mdtest.{task}.{}", holder as u64 * each + i)));
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_tree_has_111_directories_and_items_in_100_leaves() {
        let options =
            Options { depth: 2, branch: 10, items_per_dir: 200, leaf_only: true, ..Default::default() };
        assert_eq!(directories(&options, &options.dir).len(), 111);
        assert_eq!(items(&options, 0, 3, "file").len(), 20_000);
    }

    #[test]
    fn n_items_are_spread_over_the_tree() {
        let options = Options { items: 100, ..Default::default() };
        assert_eq!(items(&options, 0, 0, "file").len(), 100);
    }
}
