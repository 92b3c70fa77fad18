//! Compares the lines of `fstab` with the actual mounts.

use std::collections::BTreeSet;

use ticktax_model::configured::{FstabLine, Mounted, OtherMount};

use super::reading::Reading;

/// Maximum number of lines to read. No machine has that many.
const MAX_LINES: usize = 4_096;

/// Maximum number of mounts without a line in `fstab` to keep.
const MAX_OTHERS: usize = 64;

/// File systems with mount options that determine what an fsync guarantees.
const KEEP_DATA: [&str; 8] = [
    "btrfs", "ext2", "ext3", "ext4", "f2fs", "nfs", "nfs4", "overlay",
];

pub(super) fn read(reading: &mut Reading) -> (Vec<FstabLine>, Vec<OtherMount>) {
    let fstab = reading.text("etc/fstab").unwrap_or_default();
    let Some(mounts) = reading.text("proc/mounts") else {
        // Without the list of mounts, every line would seem to be unmounted.
        return (Vec::new(), Vec::new());
    };
    let mounts: Vec<[String; 4]> = mounts.lines().filter_map(fields).collect();
    let lines: Vec<[String; 4]> = fstab.lines().filter_map(fields).take(MAX_LINES).collect();
    let others = others(reading, &mounts, &lines);
    let line = |[device, place, kind, options]: [String; 4]| {
        // If several mounts share a mount point, the last one is on top.
        let mut above = mounts.iter().rev();
        let mounted = above.find(|mount| same_place(&mount[1], &place));
        FstabLine {
            device,
            mount_point: place,
            kind,
            options: list(&options),
            mounted: mounted.map(|mount| mounted_as(reading, mount)),
        }
    };
    (lines.into_iter().map(line).collect(), others)
}

/// Returns the mounts that store data but have no line in `fstab`. If several mounts have the same
/// device, type and options, returns only one of them.
fn others(reading: &mut Reading, mounts: &[[String; 4]], lines: &[[String; 4]]) -> Vec<OtherMount> {
    let mut seen = BTreeSet::new();
    let mut others = Vec::new();
    let is_listed = |place: &str| lines.iter().any(|line| same_place(&line[1], place));
    let listed = mounts.iter().filter(|mount| is_listed(&mount[1]));
    // A bind mount or a subvolume exposes a file system that already has a line, so it does not
    // count.
    let devices: BTreeSet<&String> = listed.map(|mount| &mount[0]).collect();
    let unlisted = mounts.iter().filter(|[device, place, kind, _]| {
        let is_view = kind != "overlay" && devices.contains(device);
        KEEP_DATA.contains(&&**kind) && !is_view && !is_listed(place)
    });
    for mount in unlisted {
        if others.len() == MAX_OTHERS {
            break;
        }
        let mut mounted = mounted_as(reading, mount);
        // Ignore the directories that an overlay consists of. They differ for every container, so a
        // machine could have hundreds of mounts that are otherwise equal.
        mounted.options.retain(|option| !option.contains("dir="));
        let key = (
            mounted.device.clone(),
            mounted.kind.clone(),
            mounted.options.clone(),
        );
        if seen.insert(key) {
            let place = mount[1].clone();
            others.push(OtherMount {
                mount_point: place,
                mounted,
            });
        }
    }
    others
}

fn mounted_as(reading: &mut Reading, [device, _, kind, options]: &[String; 4]) -> Mounted {
    let mut options = list(options);
    options.extend(default_options(reading, device, kind));
    Mounted {
        device: device.clone(),
        kind: kind.clone(),
        options,
    }
}

/// Returns the options that ext file systems omit from the list of mounts because they are the
/// defaults, such as `data=ordered`.
fn default_options(reading: &mut Reading, device: &str, kind: &str) -> Vec<String> {
    let name = device.rsplit('/').next().unwrap_or_default();
    if name.is_empty() || !matches!(kind, "ext2" | "ext3" | "ext4") {
        return Vec::new();
    }
    let mut folder = |driver: &str| reading.text(&format!("proc/fs/{driver}/{name}/options"));
    // Since Linux 4.3, the ext4 driver has handled ext2, ext3 and ext4, and its directory contains
    // the options of all three types.
    let options = folder(kind).or_else(|| folder("ext4")).unwrap_or_default();
    options
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

/// Returns the first four fields of a line. Returns `None` for comments and for lines with fewer
/// than three fields.
pub(crate) fn fields(line: &str) -> Option<[String; 4]> {
    let line = line.trim_start();
    if line.starts_with('#') {
        return None;
    }
    let mut words = line.split_ascii_whitespace().map(unescaped);
    let (device, place, kind) = (words.next()?, words.next()?, words.next()?);
    let options = words.next().unwrap_or_else(|| "defaults".to_owned());
    Some([device, place, kind, options])
}

fn list(options: &str) -> Vec<String> {
    options
        .split(',')
        .filter(|option| !option.is_empty())
        .map(str::to_owned)
        .collect()
}

pub(crate) fn same_place(a: &str, b: &str) -> bool {
    let trimmed = |place: &str| match place.trim_end_matches('/') {
        "" => "/".to_owned(),
        place => place.to_owned(),
    };
    trimmed(a) == trimmed(b)
}

/// Decodes the escapes in a field, such as `\040` for a space.
pub(crate) fn unescaped(field: &str) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| first == b'\\');
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{fields, same_place, unescaped};

    #[test]
    fn lines_are_parsed_like_mount_does() {
        assert_eq!(unescaped(r"/mnt/a\040b\q\04"), r"/mnt/a b\q\04");
        assert_eq!(unescaped(r"\777"), r"\777");
        assert!(fields("# /dev/sda1 / ext4 defaults 0 1").is_none());
        assert!(fields("   ").is_none());
        assert!(fields("/dev/sda1 /").is_none());
        assert_eq!(fields(" /dev/sda1 /\text4").unwrap()[3], "defaults");
        assert!(same_place("/", "/") && same_place("/srv/", "/srv") && !same_place("/", "/srv"));
    }
}
