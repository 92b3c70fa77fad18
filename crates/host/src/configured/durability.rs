//! What stands between an fsync and the disk: caches that are not flushed, and programs whose fsync
//! does nothing.

use std::fs::File;
use std::io::{self, ErrorKind, Read};

use ticktax_model::configured::{FsyncOff, FsyncOffBy, WriteCache};
use ticktax_model::limitation::Unreadable;

use super::reading::Reading;

/// More disks than any machine has.
const MAX_DISKS: usize = 4_096;
/// The library that takes programs' fsync and does nothing.
const TAKES_FSYNC: &str = "libeatmydata";

/// The caches of SCSI and ATA disks. Others do not tell what they are beside what the kernel takes them for.
pub(super) fn write_caches(reading: &mut Reading) -> Vec<WriteCache> {
    let disks = reading.names("sys/block").into_iter().take(MAX_DISKS);
    let mut cache = |disk: String| {
        let folder = format!("sys/block/{disk}/device/scsi_disk");
        let address = reading.names(&folder).into_iter().next()?;
        let mut text = |path: &str| Some(reading.text(path)?.trim().to_owned());
        Some(WriteCache {
            kernel: text(&format!("sys/block/{disk}/queue/write_cache"))?,
            own: text(&format!("{folder}/{address}/cache_type"))?,
            disk,
        })
    };
    disks.filter_map(&mut cache).collect()
}

/// Programs that run with a library or an argument by which their fsync does nothing.
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
            // A static program has the wish, and not the library.
            library(&file("maps"))
        } else {
            argument(&program, &file("cmdline"))
        };
        found.extend(by.map(|by| FsyncOff { program, pid, by }));
    }
    if is_denied {
        reading.missed("proc/PID/environ", Unreadable::NeedsRoot);
    }
    found
}

/// A file of a process, up to 1 MiB; a process that has ended has none.
fn bytes(reading: &Reading, path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(reading.path(path))?;
    file.take(1 << 20).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether an environment asks for the library.
fn is_preloaded(environ: &[u8]) -> bool {
    let variables = environ.split(|&byte| byte == 0);
    let mut preloads = variables.filter_map(|it| it.strip_prefix(b"LD_PRELOAD="));
    preloads.any(|it| String::from_utf8_lossy(it).contains(TAKES_FSYNC))
}

/// The library, where it is mapped.
fn library(maps: &[u8]) -> Option<FsyncOffBy> {
    let maps = String::from_utf8_lossy(maps);
    let path = maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        path.contains(TAKES_FSYNC).then(|| path.to_owned())
    });
    path.map(FsyncOffBy::Library)
}

/// The argument by which a database does without fsync.
fn argument(program: &str, cmdline: &[u8]) -> Option<FsyncOffBy> {
    let text = String::from_utf8_lossy(cmdline);
    let arguments: Vec<&str> = text.split('\0').skip(1).collect();
    let found = match program {
        "postgres" | "postmaster" => {
            let is_off = |setting: &str| {
                let value = setting.strip_prefix("fsync=");
                value.is_some_and(|it| matches!(it, "off" | "false" | "no" | "0"))
            };
            let of_pair = arguments
                .windows(2)
                .find(|it| it[0] == "-c" && is_off(it[1]));
            let joined = |it: &&str| {
                let setting = it.strip_prefix("--").or_else(|| it.strip_prefix("-c"));
                **it == *"-F" || setting.is_some_and(is_off)
            };
            let pair = of_pair.map(|it| it.join(" "));
            pair.or_else(|| Some((*arguments.iter().find(|it| joined(it))?).to_owned()))
        }
        "mysqld" | "mariadbd" => {
            let nosync = |it: &&&str| it.replace('_', "-") == "--innodb-flush-method=nosync";
            arguments.iter().find(nosync).map(|it| (*it).to_owned())
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
    fn databases_say_it_in_their_arguments() {
        let of = |program, cmdline: &str| argument(program, cmdline.as_bytes());
        let said = |text: &str| Some(FsyncOffBy::Argument(text.to_owned()));
        assert_eq!(of("postgres", "postgres\0-D\0/x\0-F\0"), said("-F"));
        assert_eq!(of("postgres", "p\0-c\0fsync=off\0"), said("-c fsync=off"));
        assert_eq!(of("postgres", "p\0-cfsync=no\0"), said("-cfsync=no"));
        assert_eq!(of("postgres", "p\0--fsync=0\0"), said("--fsync=0"));
        assert_eq!(of("postgres", "p\0-c\0fsync=on\0"), None);
        assert_eq!(of("postgres", "-F\0"), None);
        assert_eq!(of("sort", "sort\0-F\0"), None);
        let method = "--innodb_flush_method=nosync";
        assert_eq!(of("mysqld", &format!("m\0{method}\0")), said(method));
    }

    #[test]
    fn a_preloaded_library_is_believed_where_it_is_mapped() {
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
