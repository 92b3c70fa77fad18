//! Finds reasons why an fsync can fail to make data durable: write caches that are not flushed, and
//! programs in which fsync does nothing.

use std::fs::File;
use std::io::{self, ErrorKind, Read};

use ticktax_model::configured::{FsyncOff, FsyncOffBy, WriteCache};
use ticktax_model::limitation::Unreadable;

use super::reading::Reading;

/// Maximum number of disks to check. No machine has this many.
const MAX_DISKS: usize = 4_096;
/// Library that replaces fsync with a function that does nothing.
const FSYNC_LIBRARY: &str = "libeatmydata";

/// Returns the write caches of SCSI and ATA disks. Other disks are left out because they do not
/// report the type of their cache, so there is nothing to compare the kernel's view with.
pub(super) fn write_caches(reading: &mut Reading) -> Vec<WriteCache> {
    let disks = reading.names("sys/block").into_iter().take(MAX_DISKS);
    let mut cache = |disk: String| {
        let folder = format!("sys/block/{disk}/device/scsi_disk");
        let address = reading.names(&folder).into_iter().next()?;
        let mut text = |path: &str| Some(reading.text(path)?.trim().to_owned());
        Some(WriteCache {
            kernel: text(&format!("sys/block/{disk}/queue/write_cache"))?,
            cache_type: text(&format!("{folder}/{address}/cache_type"))?,
            disk,
        })
    };
    disks.filter_map(&mut cache).collect()
}

pub(super) fn fsync_off(reading: &mut Reading) -> Vec<FsyncOff> {
    let mut is_denied = false;
    let mut found = Vec::new();
    for name in reading.names("proc") {
        let Ok(pid) = name.parse::<i32>() else {
            continue;
        };
        let mut file = |file: &str| match bytes(reading, &format!("proc/{name}/{file}")) {
            Ok(bytes) => bytes,
            Err(error) => {
                is_denied |= error.kind() == ErrorKind::PermissionDenied;
                Vec::new()
            }
        };
        let program = String::from_utf8_lossy(file("comm").trim_ascii_end()).into_owned();
        let by = if is_preloaded(&file("environ")) {
            // `LD_PRELOAD` has no effect on a static program, so check that the library really is
            // mapped.
            library(&file("maps"))
        } else {
            argument(&program, &file("cmdline"))
        };
        found.extend(by.map(|by| FsyncOff {
            program,
            pid,
            cause: by,
        }));
    }
    if is_denied {
        reading.missed("proc/PID/environ", Unreadable::NeedsRoot);
    }
    found
}

/// Reads up to 1 MiB of a file in `/proc` that describes a process.
fn bytes(reading: &Reading, path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(reading.path(path))?;
    file.take(1 << 20).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn is_preloaded(environ: &[u8]) -> bool {
    let variables = environ.split(|&byte| byte == 0);
    let mut preloads = variables.filter_map(|variable| variable.strip_prefix(b"LD_PRELOAD="));
    preloads.any(|libraries| String::from_utf8_lossy(libraries).contains(FSYNC_LIBRARY))
}

fn library(maps: &[u8]) -> Option<FsyncOffBy> {
    let maps = String::from_utf8_lossy(maps);
    let path = maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        path.contains(FSYNC_LIBRARY).then(|| path.to_owned())
    });
    path.map(FsyncOffBy::Library)
}

/// Returns the command-line argument that makes a database skip fsync, if there is one.
fn argument(program: &str, cmdline: &[u8]) -> Option<FsyncOffBy> {
    let text = String::from_utf8_lossy(cmdline);
    let arguments: Vec<&str> = text.split('\0').skip(1).collect();
    let found = match program {
        "postgres" | "postmaster" => {
            let is_off = |setting: &str| {
                let value = setting.strip_prefix("fsync=");
                value.is_some_and(|value| matches!(value, "off" | "false" | "no" | "0"))
            };
            let pair = arguments
                .windows(2)
                .find(|pair| pair[0] == "-c" && is_off(pair[1]));
            let joined = |argument: &&str| {
                let setting = argument
                    .strip_prefix("--")
                    .or_else(|| argument.strip_prefix("-c"));
                **argument == *"-F" || setting.is_some_and(is_off)
            };
            let pair = pair.map(|pair| pair.join(" "));
            pair.or_else(|| Some((*arguments.iter().find(|argument| joined(argument))?).to_owned()))
        }
        "mysqld" | "mariadbd" => {
            let nosync =
                |argument: &&&str| argument.replace('_', "-") == "--innodb-flush-method=nosync";
            arguments
                .iter()
                .find(nosync)
                .map(|argument| (*argument).to_owned())
        }
        _ => None,
    };
    found.map(FsyncOffBy::Argument)
}

#[cfg(test)]
mod tests {
    use ticktax_model::configured::FsyncOffBy;

    use super::{argument, is_preloaded, library};

    #[test]
    fn databases_disable_fsync_with_arguments() {
        let found = |program, cmdline: &str| argument(program, cmdline.as_bytes());
        let expected = |text: &str| Some(FsyncOffBy::Argument(text.to_owned()));
        assert_eq!(found("postgres", "postgres\0-D\0/x\0-F\0"), expected("-F"));
        assert_eq!(
            found("postgres", "p\0-c\0fsync=off\0"),
            expected("-c fsync=off")
        );
        assert_eq!(found("postgres", "p\0-cfsync=no\0"), expected("-cfsync=no"));
        assert_eq!(found("postgres", "p\0--fsync=0\0"), expected("--fsync=0"));
        assert_eq!(found("postgres", "p\0-c\0fsync=on\0"), None);
        assert_eq!(found("postgres", "-F\0"), None);
        assert_eq!(found("sort", "sort\0-F\0"), None);
        let method = "--innodb_flush_method=nosync";
        assert_eq!(found("mysqld", &format!("m\0{method}\0")), expected(method));
    }

    #[test]
    fn a_preloaded_library_counts_only_if_it_is_mapped() {
        assert!(is_preloaded(b"A=b\0LD_PRELOAD=/x/libeatmydata.so\0"));
        assert!(!is_preloaded(
            b"OLD_PRELOAD=libeatmydata.so\0C=LD_PRELOAD\0"
        ));
        let line = b"7f00-7f01 r-xp 0000 fe:01 77   /usr/lib/libeatmydata.so.1\n";
        let path = "/usr/lib/libeatmydata.so.1".to_owned();
        assert_eq!(library(line), Some(FsyncOffBy::Library(path)));
        assert_eq!(library(b"7f00-7f01 r-xp 0000 00:00 0\n"), None);
    }
}
