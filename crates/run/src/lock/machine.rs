//! Identity of this machine, and whether a folder is on a file system that other machines may write to.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Linux file systems that belong to one machine. All others may be shared: treating a local one as shared costs a
/// message after a crash, treating a shared one as local would allow two writers.
const LOCAL: [&str; 22] = [
    "bcachefs", "btrfs", "devtmpfs", "ecryptfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuseblk",
    "hfsplus", "jfs", "msdos", "nilfs2", "ntfs", "ntfs3", "overlay", "ramfs", "tmpfs", "vfat", "xfs", "zfs",
];

/// Identity of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    /// Host name; every container has its own.
    pub(super) host: String,
    /// Boot id of the running kernel: operating-system locks work among all processes that share it. Empty if unknown.
    pub(super) boot: String,
}

impl Machine {
    /// The machine this process runs on.
    pub(super) fn this() -> &'static Machine {
        static THIS: LazyLock<Machine> = LazyLock::new(|| {
            let read = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).ok();
            let host = read("/proc/sys/kernel/hostname").or_else(|| std::env::var("HOSTNAME").ok());
            let host = host.filter(|host| !host.is_empty()).unwrap_or_else(|| "this machine".to_owned());
            Machine { host, boot: read("/proc/sys/kernel/random/boot_id").unwrap_or_default() }
        });
        &THIS
    }
}

/// Whether other machines may write to a folder; `false` if the file system cannot be determined.
pub(super) fn is_shared(folder: &Path) -> bool {
    let Ok(mounts) = std::fs::read_to_string("/proc/self/mountinfo") else { return false };
    let Ok(folder) = folder.canonicalize() else { return false };
    file_system(&mounts, &folder).is_some_and(|kind| !LOCAL.contains(&kind.as_str()))
}

/// Type of the file system that contains a folder. Lines are `36 35 98:0 /root /mount/point options - ext4 device ...`.
fn file_system(mounts: &str, folder: &Path) -> Option<String> {
    let mut found: Option<(PathBuf, String)> = None;
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let (Some(point), Some(kind)) = (before.split(' ').nth(4), after.split(' ').next()) else { continue };
        let point = PathBuf::from(unescaped(point));
        // Of two mounts at the same point, the later one hides the earlier.
        let deeper = found.as_ref().is_none_or(|(best, _)| point.starts_with(best));
        if folder.starts_with(&point) && deeper {
            found = Some((point, kind.to_owned()));
        }
    }
    found.map(|(_, kind)| kind)
}

/// Resolves octal escapes: a space is written as `\040`.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| first == b'\\');
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /proc rw - proc proc rw
40 22 0:44 / /home rw - nfs4 server:/home rw,vers=4.2
41 40 0:45 / /home/anna/my\\040data rw - lustre mgs@tcp:/scratch rw,flock
42 22 0:46 / /scratch rw - ext4 /dev/sdb1 rw
43 22 0:47 / /scratch rw - fuse.sshfs node:/ rw
broken line
";

    #[test]
    fn the_deepest_and_latest_mount_point_is_used() {
        for (folder, kind) in [
            ("/var/runs", "ext4"),
            ("/homes/anna", "ext4"),
            ("/home/anna/runs", "nfs4"),
            ("/home/anna/my data/runs", "lustre"),
            ("/scratch/x", "fuse.sshfs"),
        ] {
            assert_eq!(file_system(MOUNTS, Path::new(folder)).as_deref(), Some(kind), "{folder}");
        }
        assert_eq!(file_system("", Path::new("/home")), None);
    }

    #[test]
    fn a_temporary_folder_is_local() {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        assert!(!is_shared(folder.path()));
        assert!(!is_shared(&folder.path().join("nowhere")));
    }
}
