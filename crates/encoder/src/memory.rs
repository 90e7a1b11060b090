//! Whether weights fit into what is left of the memory, asked before they are read: a process that the system ends for its
//! memory takes everybody's work with it, and says nothing.
//!
//! # Contract
//! Generous: what the page cache holds counts as free, free swap too, and where a system says nothing (all but Linux)
//! nothing is refused. Activations and the tokenizer are not counted.

use std::fs;
use std::path::Path;

use crate::{Device, LoadError};

/// Refuses weights of `needed` bytes on a device with `available` bytes left; `None`: it is not known.
///
/// # Errors
/// [`LoadError::NotEnoughMemory`].
pub fn check(device: Device, needed: u64, available: Option<u64>) -> Result<(), LoadError> {
    match available {
        Some(available) if needed > available => Err(LoadError::NotEnoughMemory { device, needed, available }),
        _ => Ok(()),
    }
}

/// Bytes that this process may still take: the least of what the system has and what its control groups leave it.
pub fn available() -> Option<u64> {
    if cfg!(target_os = "linux") { from_files(Path::new("/")) } else { None }
}

/// The same from the system's files under `root`.
fn from_files(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let swap = kilobytes(&text, "SwapFree:").unwrap_or(0);
    let system = kilobytes(&text, "MemAvailable:")? + swap;
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().filter_map(|line| {
        let (hierarchy, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        match controllers {
            "" if hierarchy == "0" => left_of_groups(&root.join("sys/fs/cgroup"), path, &V2),
            _ if controllers.split(',').any(|one| one == "memory") => {
                left_of_groups(&root.join("sys/fs/cgroup/memory"), path, &V1)
            }
            _ => None,
        }
    });
    limits.map(|left| left.saturating_add(swap)).chain([system]).min()
}

/// How a version of control groups calls its files and values.
struct Version {
    limit: &'static str,
    usage: &'static str,
    cached: [&'static str; 2],
}

const V2: Version =
    Version { limit: "memory.max", usage: "memory.current", cached: ["active_file ", "inactive_file "] };
const V1: Version = Version {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cached: ["total_active_file ", "total_inactive_file "],
};

/// The least that is left of the group `path` and of those around it. In a container the path is often the host's, which
/// is not there, and the mount itself is the group: so every level is tried.
fn left_of_groups(mount: &Path, path: &str, version: &Version) -> Option<u64> {
    let group = mount.join(path.trim_start_matches('/'));
    group.ancestors().take_while(|folder| folder.starts_with(mount)).filter_map(|folder| left(folder, version)).min()
}

fn left(folder: &Path, version: &Version) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    // "max" is no number: no limit.
    let limit: u64 = read(version.limit)?.trim().parse().ok()?;
    let usage: u64 = read(version.usage)?.trim().parse().ok()?;
    let stat = read("memory.stat").unwrap_or_default();
    let cached: u64 = version.cached.iter().filter_map(|name| number(&stat, name)).sum();
    Some(limit.saturating_sub(usage.saturating_sub(cached)))
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    Some(number(text, name)? << 10)
}

/// The number behind `name` at the beginning of a line.
fn number(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal: 8000 kB\nMemFree: 100 kB\nMemAvailable:    4000 kB\nSwapFree: 10 kB\n";

    /// Path and content.
    type File<'a> = (&'a str, &'a str);

    fn system(files: &[File<'_>]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        from_files(root.path())
    }

    #[test]
    fn the_least_of_system_and_groups_is_left() {
        let meminfo = ("proc/meminfo", MEMINFO);
        let v2 = ("proc/self/cgroup", "0::/a/b\n");
        let v1 = ("proc/self/cgroup", "3:cpu,cpuacct:/x\n4:memory:/docker/1\n0::/\n");
        let stat = ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 300\nactive_file 200\n");
        let cases: [(&str, &[File<'_>], Option<u64>); 7] = [
            ("no files", &[], None),
            ("no groups", &[meminfo], Some(4010 << 10)),
            ("no limit", &[meminfo, v2, ("sys/fs/cgroup/a/b/memory.max", "max\n")], Some(4010 << 10)),
            (
                "a limit further up, the cache being free",
                &[meminfo, v2, ("sys/fs/cgroup/a/memory.max", "2000"), ("sys/fs/cgroup/a/memory.current", "900"), stat],
                Some(1600 + (10 << 10)),
            ),
            (
                "more used than allowed",
                &[meminfo, v2, ("sys/fs/cgroup/a/memory.max", "10"), ("sys/fs/cgroup/a/memory.current", "900")],
                Some(10 << 10),
            ),
            (
                "version 1 in a container, where the mount is the group",
                &[
                    meminfo,
                    v1,
                    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n"),
                    ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n"),
                    ("sys/fs/cgroup/memory/memory.stat", "total_active_file 1\ntotal_inactive_file 2\n"),
                ],
                Some(4003 + (10 << 10)),
            ),
            (
                "version 1 without a limit, which is a number past all memory",
                &[
                    meminfo,
                    v1,
                    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                    ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n"),
                ],
                Some(4010 << 10),
            ),
        ];
        for (what, files, expected) in cases {
            assert_eq!(system(files), expected, "{what}");
        }
    }

    #[test]
    fn weights_are_refused_with_figures_only_when_they_do_not_fit() {
        assert!(check(Device::Cpu, 100, None).is_ok());
        assert!(check(Device::Cpu, 100, Some(100)).is_ok());
        let error = check(Device::Cuda(1), 101, Some(100)).unwrap_err().to_string();
        assert!(error.contains("101 bytes on device 'cuda:1', which has 100 left"), "{error}");
    }
}
