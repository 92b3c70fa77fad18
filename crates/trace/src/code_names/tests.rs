use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::unistd::{Gid, Uid, chown, geteuid, mkfifo};
use ticktax_model::limitation::FunctionsUnnamed;

use super::{Code, Found, OpenFile, pid_and_user, started_ago_s};

/// Mounts of a process whose files are all on one disk.
const LOCAL: &str = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n";

/// A directory like `/proc` with process 7, which is process 3 in its own namespace.
fn proc_with_map(user: u32) -> tempfile::TempDir {
    let proc = tempfile::tempdir().unwrap();
    let process = proc.path().join("7");
    fs::create_dir_all(process.join("root/tmp")).unwrap();
    let status = format!("Name:\tx\nUid:\t9\t{user}\t9\t9\nNSpid:\t7\t3\n");
    fs::write(process.join("status"), status).unwrap();
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    // The process started 60 s ago, or when the machine did.
    let started = (uptime - 60.0).max(0.0) * 100.0;
    let stat = format!("7 (a) b) S 1 {}{started:.0} 0\n", "0 ".repeat(17));
    fs::write(process.join("stat"), stat).unwrap();
    fs::write(process.join("mountinfo"), LOCAL).unwrap();
    fs::write(map(proc.path()), "1000 20 py::update\n").unwrap();
    proc
}

fn map(proc: &Path) -> std::path::PathBuf {
    proc.join("7/root/tmp/perf-3.map")
}

fn find(proc: &Path, code: Code) -> Found {
    code.find(proc, 7, &[0x1010, 0x2010], &mut || {})
}

fn generated(proc: &Path) -> Vec<String> {
    let found = find(proc, Code::generated(proc, 7));
    assert_eq!(found.reason, FunctionsUnnamed::NoPerfMap);
    found
        .functions
        .into_iter()
        .map(|places| places.function)
        .collect()
}

#[test]
fn a_perf_map_names_generated_code() {
    let proc = proc_with_map(geteuid().as_raw());
    assert_eq!(generated(proc.path()), ["py::update"]);
    // The map can grow, or be created, after the first sample.
    let code = Code::generated(proc.path(), 7);
    let mut file = File::options().append(true).open(map(proc.path())).unwrap();
    file.write_all(b"2000 20 py::render\n").unwrap();
    assert_eq!(find(proc.path(), code).functions.len(), 2);
    fs::remove_file(map(proc.path())).unwrap();
    assert!(generated(proc.path()).is_empty());
    let code = Code::generated(proc.path(), 7);
    fs::write(map(proc.path()), "2000 20 py::render\n").unwrap();
    assert_eq!(find(proc.path(), code).functions.len(), 1);
}

#[test]
fn a_map_from_before_the_process_started_is_not_its_own() {
    let proc = proc_with_map(geteuid().as_raw());
    let file = File::options().append(true).open(map(proc.path())).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1))
        .unwrap();
    assert!(generated(proc.path()).is_empty());
}

#[test]
fn a_link_or_a_pipe_is_no_map() {
    let proc = proc_with_map(geteuid().as_raw());
    let path = map(proc.path());
    fs::rename(&path, proc.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(proc.path().join("elsewhere"), &path).unwrap();
    assert!(generated(proc.path()).is_empty());
    fs::remove_file(&path).unwrap();
    // Opening a pipe would wait for its writer.
    mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(generated(proc.path()).is_empty());
}

#[test]
fn a_map_on_another_machine_is_not_looked_for() {
    let proc = proc_with_map(geteuid().as_raw());
    let mounts = format!("{LOCAL}2 1 0:9 / /tmp rw - nfs server:/tmp rw\n");
    fs::write(proc.path().join("7/mountinfo"), mounts).unwrap();
    assert!(generated(proc.path()).is_empty());
}

#[test]
fn a_map_of_another_user_is_not_believed() {
    let own = geteuid();
    let proc = proc_with_map(own.as_raw() + 1);
    // Maps of root are always believed.
    if own.is_root() {
        let other = Some(Uid::from_raw(4_321));
        chown(&map(proc.path()), other, None::<Gid>).unwrap();
    }
    assert!(generated(proc.path()).is_empty());
}

#[test]
fn a_file_that_was_changed_has_no_names() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let open = || Code::File(OpenFile::open(&copy, 0).unwrap());
    let found = find(folder.path(), open());
    assert_eq!(found.reason, FunctionsUnnamed::NotInTable);
    let code = open();
    let mut file = File::options().append(true).open(&copy).unwrap();
    file.write_all(b"x").unwrap();
    let found = find(folder.path(), code);
    assert_eq!(found.reason, FunctionsUnnamed::Unreadable);
    // A deleted file is still open.
    let code = open();
    fs::remove_file(&copy).unwrap();
    let found = find(folder.path(), code);
    assert_eq!(found.reason, FunctionsUnnamed::NotInTable);
}

#[test]
fn another_file_at_the_path_is_not_opened() {
    use std::os::unix::fs::MetadataExt;
    let proc = tempfile::tempdir().unwrap();
    let root = proc.path().join("7/root");
    fs::create_dir_all(&root).unwrap();
    fs::write(root.join("game"), "#!/bin/sh\n").unwrap();
    fs::write(proc.path().join("7/mountinfo"), LOCAL).unwrap();
    let inode = fs::metadata(root.join("game")).unwrap().ino();
    let open = |path: Option<&str>, inode| {
        Code::mapped(proc.path(), 7, &(16..32), path.map(Path::new), inode)
    };
    assert!(matches!(open(Some("/game"), inode), Code::File(_)));
    assert!(matches!(open(Some("/game"), inode + 1), Code::Unreadable));
    assert!(matches!(open(None, inode), Code::Unreadable));
    let remote = LOCAL.replace("ext4", "fuse.sshfs");
    fs::write(proc.path().join("7/mountinfo"), remote).unwrap();
    assert!(matches!(open(Some("/game"), inode), Code::Unreadable));
    fs::write(proc.path().join("7/mountinfo"), LOCAL).unwrap();
    // A script has no symbol table.
    let found = find(proc.path(), open(Some("/game"), inode));
    assert_eq!(found.reason, FunctionsUnnamed::Stripped);
    fs::create_dir(proc.path().join("7/map_files")).unwrap();
    fs::rename(root.join("game"), proc.path().join("7/map_files/10-20")).unwrap();
    assert!(matches!(open(None, inode), Code::File(_)));
}

#[test]
fn process_files_are_parsed() {
    let status = "Name:\tNSpid:\nUid:\t0\t33\t0\t0\nNSpid:\t41\t7\t1\n";
    assert_eq!(pid_and_user(status), Some((1, 33)));
    assert_eq!(pid_and_user("Uid:\t0\n"), None);
    let own = started_ago_s(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
    let first = started_ago_s(&fs::read_to_string("/proc/1/stat").unwrap()).unwrap();
    assert!((0..=first).contains(&own), "{own} {first}");
    assert_eq!(started_ago_s("1 (x) S 1"), None);
}
