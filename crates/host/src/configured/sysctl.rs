//! Reads `sysctl.conf` and `sysctl.d` in the same way as the loaders in systemd and procps.
//!
//! If several directories contain a file of the same name, only the one in the first of these
//! directories is read. If that one is a link to `/dev/null`, none of them is read. Files are read
//! in order of name. The last setting of a parameter wins, except that an exact key wins over a
//! pattern. Some loaders also read `/etc/sysctl.conf` after all other files, and some don't. If
//! leaving that file out gives a different value, both values are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ticktax_model::configured::SysctlSetting;
use ticktax_model::limitation::Unreadable;

use super::reading::Reading;

/// Directories that contain settings files, highest precedence first.
const FOLDERS: [&str; 5] = [
    "etc/sysctl.d",
    "run/sysctl.d",
    "usr/local/lib/sysctl.d",
    "usr/lib/sysctl.d",
    "lib/sysctl.d",
];

const FILE: &str = "etc/sysctl.conf";

/// Maximum number of settings to keep, several times as many as the largest machines have.
const MAX: usize = 4_096;

/// A line in a settings file that sets a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SysctlLine {
    /// Path of the parameter below `/proc/sys`. It can be a pattern.
    path: String,
    /// Value to set, or `None` if the line only excludes the parameter from patterns.
    value: Option<String>,
    place: String,
}

pub(super) fn read(reading: &mut Reading) -> Vec<SysctlSetting> {
    let mut lines = Vec::new();
    for path in files(reading) {
        lines.extend(parse(&path, &reading.text(&path).unwrap_or_default()));
    }
    let in_folders = winners(reading, &lines);
    lines.extend(parse(FILE, &reading.text(FILE).unwrap_or_default()));
    let mut settings = Vec::new();
    for (path, (value, place)) in winners(reading, &lines) {
        if settings.len() >= MAX {
            reading.missed("etc/sysctl.d", Unreadable::TooManySettings);
            break;
        }
        let Some(live) = live(reading, &path) else {
            continue;
        };
        let others = in_folders.get(&path).filter(|(other, _)| *other != value);
        settings.push(SysctlSetting {
            key: dotted(&path),
            other_values: others.map(|(other, _)| other.clone()).into_iter().collect(),
            value,
            location: place,
            effective: live,
        });
    }
    settings
}

/// Returns the paths of the files, in the order in which they are read.
fn files(reading: &mut Reading) -> Vec<String> {
    let mut by_name: BTreeMap<String, String> = BTreeMap::new();
    for folder in FOLDERS {
        for name in reading.names(folder) {
            if Path::new(&name).extension() == Some(OsStr::new("conf")) {
                let path = format!("{folder}/{name}");
                by_name.entry(name).or_insert(path);
            }
        }
    }
    // `sysctl.d` often contains a link to `sysctl.conf`, which is read separately anyway.
    let linked = |path: &String| {
        let target = fs::read_link(reading.path(path)).unwrap_or_default();
        target.ends_with("sysctl.conf") || target.as_os_str() == "/dev/null"
    };
    by_name.into_values().filter(|path| !linked(path)).collect()
}

fn parse(file: &str, text: &str) -> Vec<SysctlLine> {
    let numbered = (1..).zip(text.lines());
    let line = |(number, line): (usize, &str)| {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            return None;
        }
        let place = format!("/{file}:{number}");
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim().to_owned())),
            None => (line, None),
        };
        // A dash before the key suppresses errors. If such a line has no value, it excludes the key
        // from patterns.
        let excluded = name.strip_prefix('-');
        if value.is_none() && excluded.is_none() {
            return None;
        }
        let path = path_of(excluded.unwrap_or(name).trim())?;
        Some(SysctlLine { path, value, place })
    };
    numbered.filter_map(line).collect()
}

/// Returns the path for a key. If the first separator in the key is a slash, slashes separate its
/// parts and a dot is an ordinary character. Otherwise, dots separate its parts.
fn path_of(key: &str) -> Option<String> {
    let first = key.find(['.', '/'])?;
    let path = if key.as_bytes()[first] == b'/' {
        key.trim_start_matches('/').to_owned()
    } else {
        key.chars()
            .map(|c| match c {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect()
    };
    let path = path
        .strip_prefix("proc/sys/")
        .map_or(path.clone(), str::to_owned);
    let is_valid = path.len() < 256
        && !path.chars().any(char::is_control)
        && path
            .split('/')
            .all(|part| !part.is_empty() && part != ".." && part != ".");
    is_valid.then_some(path)
}

/// Returns the key for `path` as `sysctl` prints it.
fn dotted(path: &str) -> String {
    let swapped = path.chars().map(|c| match c {
        '/' => '.',
        '.' => '/',
        other => other,
    });
    swapped.collect()
}

/// Returns the value of each parameter that takes effect, with the file and line that set it.
fn winners(reading: &mut Reading, lines: &[SysctlLine]) -> BTreeMap<String, (String, String)> {
    let exact: BTreeSet<&str> = lines
        .iter()
        .map(|line| &*line.path)
        .filter(|path| !is_pattern(path))
        .collect();
    let mut winners = BTreeMap::new();
    for line in lines {
        let Some(value) = &line.value else {
            continue;
        };
        let paths = if is_pattern(&line.path) {
            let mut paths = matching(reading, &line.path);
            paths.retain(|path| !exact.contains(path.as_str()));
            paths
        } else {
            vec![line.path.clone()]
        };
        for path in paths {
            winners.insert(path, (value.clone(), line.place.clone()));
        }
    }
    winners
}

fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

fn matching(reading: &mut Reading, pattern: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for part in pattern.split('/') {
        let mut next = Vec::new();
        for base in found {
            let join = |name: &str| {
                if base.is_empty() {
                    name.to_owned()
                } else {
                    format!("{base}/{name}")
                }
            };
            if is_pattern(part) {
                let names = reading.names(&format!("proc/sys/{base}"));
                next.extend(
                    names
                        .iter()
                        .filter(|name| fits(name, part))
                        .map(|name| join(name)),
                );
            } else {
                next.push(join(part));
            }
        }
        next.truncate(MAX);
        found = next;
    }
    found
}

/// Returns whether `name` matches a shell pattern with `*` and `?`. A pattern with brackets never
/// matches, because missing a finding is better than reporting a wrong one.
fn fits(name: &str, pattern: &str) -> bool {
    if pattern.contains('[') {
        return false;
    }
    let (name, pattern): (Vec<char>, Vec<char>) =
        (name.chars().collect(), pattern.chars().collect());
    // `star` holds the position of the pattern's last star, and how much of the name it has matched
    // so far.
    let (mut at, mut next, mut star) = (0, 0, None);
    while at < name.len() {
        match pattern.get(next) {
            Some('*') => {
                star = Some((next, at));
                next += 1;
            }
            Some(&c) if c == '?' || c == name[at] => {
                at += 1;
                next += 1;
            }
            _ => match star {
                Some((place, taken)) => {
                    star = Some((place, taken + 1));
                    next = place + 1;
                    at = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[next..].iter().all(|&c| c == '*')
}

/// Returns the current value of a parameter. Returns `None` if the parameter does not exist, or is
/// not both readable and writable.
fn live(reading: &mut Reading, path: &str) -> Option<String> {
    // Reading this parameter makes every CPU do work.
    if path == "vm/stat_refresh" {
        return None;
    }
    let path = format!("proc/sys/{path}");
    let mode = fs::metadata(reading.path(&path)).ok()?.permissions().mode();
    let (may_be_read, may_be_set) = (mode & 0o444 != 0, mode & 0o222 != 0);
    if !may_be_read || !may_be_set {
        return None;
    }
    Some(reading.text(&path)?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::{dotted, fits, parse, path_of};

    #[test]
    fn keys_are_paths_in_both_spellings() {
        for (key, path) in [
            ("kernel.sysrq", Some("kernel/sysrq")),
            (
                "net/ipv4/conf/eth0.7/rp_filter",
                Some("net/ipv4/conf/eth0.7/rp_filter"),
            ),
            (
                "net.ipv4.conf.eth0/7.rp_filter",
                Some("net/ipv4/conf/eth0.7/rp_filter"),
            ),
            ("/proc/sys/vm/swappiness", Some("vm/swappiness")),
            ("kernel", None),
            ("a/../b", None),
            ("..", None),
        ] {
            assert_eq!(path_of(key).as_deref(), path, "{key}");
        }
        assert_eq!(
            dotted("net/ipv4/conf/eth0.7/rp_filter"),
            "net.ipv4.conf.eth0/7.rp_filter"
        );
    }

    #[test]
    fn lines_are_parsed_like_the_loaders_do() {
        let text =
            "# a = 1\n; b = 1\n  kernel.x=2\n-net.y = a b \n-net.z\nnonsense\n\u{0}.x = 1\n=\n";
        let lines = parse("f", text);
        let short: Vec<_> = lines
            .iter()
            .map(|l| (&*l.path, l.value.as_deref()))
            .collect();
        assert_eq!(
            short,
            [
                ("kernel/x", Some("2")),
                ("net/y", Some("a b")),
                ("net/z", None)
            ]
        );
        assert_eq!(lines[0].place, "/f:3");
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (name, pattern, expected) in [
            ("eth0", "*", true),
            ("eth0", "eth?", true),
            ("eth0", "e*0", true),
            ("eth01", "e*0", false),
            ("all", "*l*l", true),
            ("lo", "eth*", false),
            ("", "*", true),
            ("eth0", "[e]*", false),
        ] {
            assert_eq!(fits(name, pattern), expected, "{name} {pattern}");
        }
    }
}
