//! How much memory this process may use.
//!
//! Absent: how much it uses, and what is made of the answer.

use std::path::{Path, PathBuf};

/// Bytes of memory that this process may use: the machine's, or the least that a memory cgroup (version 2 or 1) around it allows.
/// None where the system does not say.
#[must_use]
pub fn memory_bytes() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    of_machine(&read).into_iter().chain(of_groups(&read)).min()
}

fn of_machine(read: &impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let text = read(Path::new("/proc/meminfo"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The limits of the group that this process is in, and of those above it; see cgroups(7).
fn of_groups(read: &impl Fn(&Path) -> Option<String>) -> Vec<u64> {
    let text = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let files = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, group) = (parts.next()?, parts.next()?, parts.next()?.trim_start_matches('/'));
        match controllers {
            "" => Some((PathBuf::from("/sys/fs/cgroup"), group, "memory.max")),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some((PathBuf::from("/sys/fs/cgroup/memory"), group, "memory.limit_in_bytes"))
            }
            _ => None,
        }
    });
    let mut limits = Vec::new();
    for (root, group, file) in files {
        // A container may see its own group as the root.
        for folder in Path::new(group).ancestors() {
            // `max` where there is none.
            limits
                .extend(read(&root.join(folder).join(file)).and_then(|text| text.trim().parse::<u64>().ok()));
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(files: &[(&str, &str)]) -> Vec<u64> {
        of_groups(&|path: &Path| {
            files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_groups_above_count_too() {
        let files = [
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "536870912\n"),
        ];
        assert_eq!(limits(&files), [536_870_912]);
        let files = [
            ("/proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/x\n0::/y\n"),
            ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1000\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(limits(&files), [1000, 9_223_372_036_854_771_712]);
        assert_eq!(limits(&[]), []);
        assert_eq!(limits(&[("/proc/self/cgroup", "nonsense\n1:memory\n")]), []);
    }

    #[test]
    fn a_machine_has_memory() {
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
