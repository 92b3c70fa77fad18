//! The rights that an agent has: what attaching needs, and none afterwards.

use std::fmt::Display;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::Path;

use caps::CapSet;
use nix::sys::prctl::set_no_new_privs;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{self, geteuid, setgroups, setresgid, setresuid};
use ticktax_model::disk::words;

use crate::failure::Failure;

/// The users that root becomes when none is named, the first that there is.
const USERS: [&str; 2] = ["ticktax", "nobody"];

/// Files from now on may be read by their group and by nobody else, and written by their owner.
pub(super) fn keep_files_private() {
    umask(Mode::from_bits_truncate(0o027));
}

/// Whom the agent becomes.
pub(super) struct User {
    /// `None`: it stays who it is.
    becomes: Option<unistd::User>,
}

impl User {
    /// The user of this name, or who it is by itself.
    pub(super) fn chosen(name: Option<&str>) -> Result<Self, Failure> {
        let find = |name: &str| unistd::User::from_name(name).ok().flatten();
        let becomes = match name {
            Some(name) => {
                let user = find(name).ok_or_else(|| {
                    Failure::Arguments(format!(
                        "no user is called `{name}`: name one of `getent passwd`, or make one"
                    ))
                })?;
                if !geteuid().is_root() && user.uid != geteuid() {
                    return Err(Failure::Arguments(format!(
                        "only root can become `{name}`: leave out --user, or start it as root"
                    )));
                }
                Some(user)
            }
            None if geteuid().is_root() => USERS.into_iter().find_map(find),
            None => None,
        };
        Ok(Self { becomes })
    }

    /// Makes a folder where there is none, and lets the user have it, as those above it that are made for it.
    pub(super) fn make_folder(&self, folder: &Path) -> Result<(), Failure> {
        self.make(folder, 0o750)
    }

    /// The same, of a folder that nobody else may look into.
    pub(super) fn make_private_folder(&self, folder: &Path) -> Result<(), Failure> {
        self.make(folder, 0o700)
    }

    fn make(&self, folder: &Path, mode: u32) -> Result<(), Failure> {
        let above = folder.ancestors().skip(1);
        let above: Vec<&Path> = above
            .take_while(|it| !it.as_os_str().is_empty() && !it.exists())
            .collect();
        let all = above.into_iter().rev().map(|it| (it, 0o750));
        for (path, mode) in all.chain([(folder, mode)]) {
            match DirBuilder::new().mode(mode).create(path) {
                Ok(()) => self.own(path)?,
                Err(_) if path.is_dir() => {}
                Err(error) => {
                    let why = words(error.kind());
                    return Err(Failure::Agent(format!(
                        "cannot make {}: {why}",
                        path.display()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Lets the user have a file or a folder.
    pub(super) fn own(&self, path: &Path) -> Result<(), Failure> {
        let Some(user) = self.becomes.as_ref().filter(|_| geteuid().is_root()) else {
            return Ok(());
        };
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        chown(path, Some(uid), Some(gid)).map_err(|error| {
            let why = words(error.kind());
            let (path, name) = (path.display(), &user.name);
            Failure::Agent(format!("cannot give {path} to {name}: {why}"))
        })
    }

    /// Becomes this user, and gives up every capability for good. To be called before there is a second
    /// thread: capabilities are each thread's own.
    pub(super) fn become_it(&self) -> Result<(), Failure> {
        let failed = |what: &str| {
            Failure::Agent(format!(
                "cannot give up {what}, and does not go on with it: name another --user, or start it as an \
                 ordinary user with the three capabilities"
            ))
        };
        if let Some(user) = self.becomes.as_ref().filter(|_| geteuid().is_root()) {
            let became = setgroups(&[user.gid])
                .and_then(|()| setresgid(user.gid, user.gid, user.gid))
                .and_then(|()| setresuid(user.uid, user.uid, user.uid));
            became.map_err(|_| failed("root"))?;
        }
        for set in [
            CapSet::Ambient,
            CapSet::Inheritable,
            CapSet::Effective,
            CapSet::Permitted,
        ] {
            caps::clear(None, set).map_err(|_| failed("its capabilities"))?;
        }
        let left = caps::read(None, CapSet::Permitted);
        if !left.is_ok_and(|left| left.is_empty()) {
            return Err(failed("its capabilities"));
        }
        set_no_new_privs().map_err(|_| failed("the right to gain others"))
    }

    /// What to say where something cannot be written.
    pub(super) fn failure(&self, error: &dyn Display) -> Failure {
        Failure::Agent(match &self.becomes {
            Some(user) => format!("{error} (as user {})", user.name),
            None => error.to_string(),
        })
    }
}
