use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn name(name: &str) -> &OsStr {
    OsStr::new(name)
}

#[test]
fn a_link_is_neither_read_written_measured_nor_followed() {
    let place = temporary();
    let victim = place.path().join("victim");
    fs::write(&victim, "precious").expect("written");
    symlink(&victim, place.path().join("link")).expect("a link");
    symlink(place.path(), place.path().join("up")).expect("a link");
    let folder = Folder::open_trusted(place.path()).expect("our own");
    let link = name("link");
    for refused in [
        folder.read(link).err(),
        folder.write(link, true, 0o600).err(),
    ] {
        let refused = refused.expect("a link").to_string();
        assert!(refused.contains("not a regular file"), "{refused}");
    }
    let taken = folder.create_new(link, 0o600).expect_err("taken");
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    assert_eq!(folder.size(link), None);
    assert!(folder.has(link));
    assert!(folder.child(name("up")).is_err());
    folder.remove(link).expect("removed");
    assert_eq!(fs::read_to_string(&victim).expect("read"), "precious");
}

#[test]
fn a_name_with_a_path_in_it_is_refused() {
    let place = temporary();
    fs::write(place.path().join("victim"), "precious").expect("written");
    let inner = place.path().join("inner");
    fs::create_dir(&inner).expect("a folder");
    let folder = Folder::open(&inner).expect("a folder");
    for bad in ["../victim", "/etc/passwd", "..", ".", "", "a/b", "a/"] {
        let kinds = [
            folder.read(name(bad)).err().map(|error| error.kind()),
            folder.remove(name(bad)).err().map(|error| error.kind()),
        ];
        assert_eq!(kinds, [Some(ErrorKind::InvalidFilename); 2], "{bad}");
        assert_eq!(folder.size(name(bad)), None, "{bad}");
    }
}

#[test]
fn a_pipe_is_refused_at_once() {
    let place = temporary();
    let pipe = place.path().join("pipe");
    nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
    let folder = Folder::open(place.path()).expect("a folder");
    for refused in [
        folder.read(name("pipe")).err(),
        folder.write(name("pipe"), false, 0).err(),
    ] {
        let refused = refused.expect("a pipe").to_string();
        assert!(refused.contains("not a regular file"), "{refused}");
    }
}

#[test]
fn a_folder_that_others_can_change_is_not_trusted() {
    let place = temporary();
    let open = place.path().join("open");
    let inner = open.join("inner");
    fs::create_dir_all(&inner).expect("folders");
    let mode = |mode| fs::set_permissions(&open, Permissions::from_mode(mode)).expect("a mode");
    mode(0o777);
    let refused = Folder::open_trusted(&inner)
        .expect_err("distrusted")
        .to_string();
    assert!(refused.contains("other users can write to"), "{refused}");
    assert!(Folder::open_own(&open).is_err());
    // For the user's own files, it is enough that nobody else can write to the directory itself.
    Folder::open_own(&inner).expect("our own");
    // This is the mode of `/tmp`: nobody can replace this user's entries, but others can add their
    // own.
    mode(0o1777);
    Folder::open_trusted(&inner).expect("trusted");
    assert!(Folder::open_trusted(&open).is_err());
    mode(0o755);
    Folder::open_trusted(&open).expect("trusted");
}

mod root {
    use std::os::unix::fs::chown;

    use super::*;

    /// User id of `nobody` on all distributions.
    const SOMEBODY: u32 = 65_534;

    #[test]
    fn a_folder_of_another_user_and_those_below_it_are_not_trusted() {
        if !geteuid().is_root() {
            return;
        }
        let place = temporary();
        let theirs = place.path().join("theirs");
        let below = theirs.join("below");
        fs::create_dir_all(&below).expect("folders");
        chown(&theirs, Some(SOMEBODY), Some(SOMEBODY)).expect("root gives it away");
        let refused = Folder::open_own(&theirs).expect_err("theirs").to_string();
        assert!(refused.contains("belongs to user 65534"), "{refused}");
        for refused in [
            Folder::open_trusted(&theirs),
            Folder::open_trusted(&below),
            Folder::make_trusted(&theirs.join("new"), 0o700),
        ] {
            let refused = refused.expect_err("below theirs").to_string();
            assert!(
                refused.contains("who could replace its contents"),
                "{refused}"
            );
        }
        assert!(!theirs.join("new").exists());
    }
}

#[test]
fn a_group_may_write_only_if_it_is_the_users_private_one() {
    let place = temporary();
    let path = place.path().join("shared");
    fs::create_dir(&path).expect("a folder");
    fs::set_permissions(&path, Permissions::from_mode(0o770)).expect("a mode");
    let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
    let is_private = !user.is_root() && user.as_raw() == group.as_raw();
    assert_eq!(Folder::open_own(&path).is_ok(), is_private);
}

#[test]
fn a_file_that_others_can_write_to_is_refused() {
    let place = temporary();
    let folder = Folder::open(place.path()).expect("a folder");
    let mut file = folder.write(name("file"), true, 0o600).expect("made");
    file.write_all(b"mine").expect("written");
    let path = place.path().join("file");
    fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("a mode");
    let refused = folder
        .write(name("file"), true, 0o600)
        .expect_err("refused");
    assert!(refused.to_string().contains("chmod"), "{refused}");
    let mut text = String::new();
    folder
        .read(name("file"))
        .expect("open")
        .read_to_string(&mut text)
        .expect("read");
    assert_eq!(text, "mine");
}

#[test]
fn missing_directories_are_created_but_not_through_dangling_links() {
    let place = temporary();
    let deep = place.path().join("a/b/c");
    let folder = Folder::make_trusted(&deep, 0o700).expect("made");
    assert_eq!(folder.path(), deep);
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&deep), 0o700);
    Folder::make_trusted(&deep, 0o700).expect("there already");
    symlink(place.path().join("nowhere"), place.path().join("link")).expect("a link");
    assert!(Folder::make_trusted(&place.path().join("link"), 0o700).is_err());
    assert!(!place.path().join("nowhere").exists());
}

#[test]
fn a_folder_is_reached_through_one_that_cannot_be_listed() {
    let place = temporary();
    let deep = place.path().join("closed/own");
    fs::create_dir_all(&deep).expect("made");
    let mode = |bits| {
        let closed = place.path().join("closed");
        fs::set_permissions(closed, Permissions::from_mode(bits)).expect("a mode");
    };
    mode(0o311);
    let opened = Folder::open_trusted(&deep).and_then(|folder| folder.names());
    mode(0o700);
    assert_eq!(opened.expect("listed"), [""; 0]);
}

#[test]
fn a_link_is_not_modified_and_only_an_empty_folder_is_removed() {
    let place = temporary();
    let victim = place.path().join("victim");
    fs::write(&victim, "precious").expect("written");
    symlink(&victim, place.path().join("link")).expect("a link");
    let folder = Folder::open(place.path()).expect("a folder");
    assert!(folder.modify(name("link")).is_err());
    let mut opened = folder.modify(name("victim")).expect("a file");
    opened.write_all(b"new").expect("written");
    assert_eq!(fs::read_to_string(&victim).expect("read"), "newcious");
    folder.make(name("sub"), 0o700).expect("made");
    fs::write(place.path().join("sub/file"), "").expect("written");
    assert!(folder.remove_folder(name("sub")).is_err());
    fs::remove_file(place.path().join("sub/file")).expect("removed");
    folder.remove_folder(name("sub")).expect("removed");
    assert!(folder.remove_folder(name("../x")).is_err());
}

#[test]
fn a_new_folder_has_its_mode_and_a_taken_name_is_an_error() {
    let place = temporary();
    let folder = Folder::open_guarded(place.path()).expect("our own");
    let new = name("new");
    folder.make_new(new, 0o775).expect("made");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    // The usual umask would reduce the mode to 0755.
    assert_eq!(mode(&place.path().join("new")), 0o775);
    symlink("/", place.path().join("link")).expect("a link");
    for taken in ["new", "link"] {
        let refused = folder.make_new(name(taken), 0o700).expect_err("taken");
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{taken}");
    }
}

#[test]
fn a_folder_is_guarded_if_nobody_else_can_exchange_its_entries() {
    let place = temporary();
    let open = place.path().join("open");
    fs::create_dir(&open).expect("a folder");
    for (mode, is_guarded) in [(0o755, true), (0o777, false), (0o1777, true)] {
        fs::set_permissions(&open, Permissions::from_mode(mode)).expect("a mode");
        assert_eq!(Folder::open_guarded(&open).is_ok(), is_guarded, "{mode:o}");
    }
}

#[test]
fn names_are_listed_each_time() {
    let place = temporary();
    let folder = Folder::open(place.path()).expect("a folder");
    folder.create_new(name("one"), 0o600).expect("made");
    assert_eq!(folder.names().expect("listed"), ["one"]);
    folder.rename(name("one"), name("two")).expect("renamed");
    assert_eq!(folder.names().expect("listed"), ["two"]);
}
