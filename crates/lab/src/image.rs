//! Builds an initramfs: a cpio archive in `newc` format, the only format that the kernel unpacks
//! (`Documentation/driver-api/early-userspace/buffer-format.rst`).
//!
//! The same contents always result in the same bytes, because inode numbers are sequential and all
//! timestamps are 0.

use std::collections::BTreeSet;

/// File types, as encoded in `st_mode`.
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// An initramfs under construction.
#[derive(Clone, Debug, Default)]
pub struct Image {
    bytes: Vec<u8>,
    entries: u32,
    paths: BTreeSet<String>,
}

/// Path of an entry whose contents are too large for the archive format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot put `{0}` into an initramfs: larger than 4 GiB")]
pub struct TooLarge(pub String);

impl Image {
    /// Creates an archive with the device nodes that every program needs: `console`, which the
    /// kernel opens for PID 1, and `null`.
    pub fn new() -> Self {
        let mut image = Self::default();
        image.device("dev/console", 5, 1);
        image.device("dev/null", 1, 3);
        image
    }

    /// Returns whether the archive contains an entry at `path`.
    pub fn has(&self, path: &str) -> bool {
        self.paths.contains(path.trim_matches('/'))
    }

    /// Adds a directory and its parent directories.
    pub fn folder(&mut self, path: &str) {
        let path = path.trim_matches('/');
        let parents = path.match_indices('/').map(|(at, _)| &path[..at]);
        let missing: Vec<&str> = parents
            .chain([path])
            .filter(|folder| !folder.is_empty() && !self.has(folder))
            .collect();
        for folder in missing {
            self.entry(folder, FOLDER | 0o755, 2, (0, 0), 0);
        }
    }

    /// Adds an executable file and its parent directories.
    ///
    /// # Errors
    /// Returns an error if `contents` is 4 GiB or larger.
    pub fn file(&mut self, path: &str, contents: &[u8]) -> Result<(), TooLarge> {
        let path = self.parent_of(path);
        let length = u32::try_from(contents.len()).map_err(|_| TooLarge(path.clone()))?;
        self.entry(&path, FILE | 0o755, 1, (0, 0), length);
        self.bytes.extend_from_slice(contents);
        self.pad();
        Ok(())
    }

    /// Adds a symbolic link that points to `to`, and the link's parent directories.
    ///
    /// # Errors
    /// Returns an error if `to` is 4 GiB or larger.
    pub fn link(&mut self, path: &str, to: &str) -> Result<(), TooLarge> {
        let path = self.parent_of(path);
        let length = u32::try_from(to.len()).map_err(|_| TooLarge(path.clone()))?;
        self.entry(&path, LINK | 0o777, 1, (0, 0), length);
        self.bytes.extend_from_slice(to.as_bytes());
        self.pad();
        Ok(())
    }

    /// Completes the archive and returns its bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.entries = 0;
        self.entry("TRAILER!!!", 0, 1, (0, 0), 0);
        self.bytes
    }

    fn device(&mut self, path: &str, major: u32, minor: u32) {
        let path = self.parent_of(path);
        self.entry(&path, CHARACTER_DEVICE | 0o600, 1, (major, minor), 0);
    }

    /// Adds the parent directories of `path`. Returns `path` without leading and trailing slashes.
    fn parent_of(&mut self, path: &str) -> String {
        let path = path.trim_matches('/');
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent);
        }
        path.to_owned()
    }

    fn entry(&mut self, path: &str, mode: u32, links: u32, device: (u32, u32), length: u32) {
        self.entries += 1;
        self.paths.insert(path.to_owned());
        let name_length = u32::try_from(path.len() + 1).unwrap_or(u32::MAX);
        let owner = 0;
        let time = 0;
        let checksum = 0;
        let fields = [
            self.entries,
            mode,
            owner,
            owner,
            links,
            time,
            length,
            0,
            0,
            device.0,
            device.1,
            name_length,
            checksum,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    /// Pads the archive to a multiple of four bytes, where headers and file contents must start.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::Image;

    fn example() -> Image {
        let mut image = Image::new();
        image.file("/init", b"abcde").unwrap();
        image.file("/lib/x86/libc.so", &[7; 9]).unwrap();
        image.file("/lib/x86/libm.so", &[]).unwrap();
        image.link("/lib64/ld.so", "../lib/x86/libc.so").unwrap();
        image.folder("/proc");
        image
    }

    /// Parses an archive according to the format's documentation. Returns each entry's path, mode
    /// and contents.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let field = |n: usize| {
                let text = std::str::from_utf8(&bytes[6 + 8 * n..14 + 8 * n]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (mode, length, name_length) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8(bytes[110..109 + name_length].to_vec()).unwrap();
            let begin = (110 + name_length).next_multiple_of(4);
            let contents = bytes[begin..begin + length].to_vec();
            bytes = &bytes[(begin + length).next_multiple_of(4)..];
            if name == "TRAILER!!!" {
                assert!(bytes.is_empty());
                return entries;
            }
            entries.push((name, mode, contents));
        }
    }

    #[test]
    fn an_archive_can_be_read_back() {
        let entries = read(&example().finish());
        let names: Vec<&str> = entries.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "dev",
                "dev/console",
                "dev/null",
                "init",
                "lib",
                "lib/x86",
                "lib/x86/libc.so",
                "lib/x86/libm.so",
                "lib64",
                "lib64/ld.so",
                "proc"
            ]
        );
        assert_eq!(entries[3].2, b"abcde");
        assert_eq!(entries[3].1, 0o100_755);
        assert_eq!(entries[1].1, 0o020_600);
        assert_eq!(entries[6].2, [7; 9]);
        assert_eq!(
            (entries[9].1, &*entries[9].2),
            (0o120_777, &b"../lib/x86/libc.so"[..])
        );
    }

    #[test]
    fn cpio_lists_the_same_entries() {
        let started = Command::new("cpio")
            .arg("-t")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut cpio) = started else {
            return;
        };
        cpio.stdin
            .take()
            .unwrap()
            .write_all(&example().finish())
            .unwrap();
        let output = cpio.wait_with_output().unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        let names: Vec<String> = read(&example().finish())
            .into_iter()
            .map(|entry| entry.0)
            .collect();
        assert_eq!(listed.lines().collect::<Vec<_>>(), names);
    }

    #[test]
    fn the_same_contents_give_the_same_bytes() {
        assert_eq!(example().finish(), example().finish());
    }
}
