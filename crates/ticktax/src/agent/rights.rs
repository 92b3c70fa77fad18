//! Manages the agent's rights. The agent starts with the rights it needs to attach BPF programs,
//! and then drops them all.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io;
use std::path::Path;

use caps::CapSet;
use nix::sys::prctl::set_no_new_privs;
use nix::sys::stat::{Mode, fchmod, umask};
use nix::unistd::{self, Uid, fchown, geteuid, setgroups, setresgid, setresuid};
use ticktax_store::disk::{Folder, error_words};

use crate::failure::Failure;

/// Default users for an agent started as root. It switches to the first one that exists.
const USERS: [&str; 2] = ["ticktax", "nobody"];

/// Makes new files readable by their group and writable only by their owner.
pub(super) fn keep_files_private() {
    umask(Mode::from_bits_truncate(0o027));
}

/// Empties the capability bounding set of this thread and of the threads that it will start, so
/// that no program they run can gain a capability. This requires `CAP_SETPCAP`. Without it, the set
/// stays unchanged, and only `no_new_privs` keeps programs from gaining capabilities.
pub(super) fn empty_bounding_set() {
    let _ = caps::clear(None, CapSet::Bounding);
}

pub(super) struct User {
    /// The user that the agent switches to, or `None` if it keeps its current user.
    becomes: Option<unistd::User>,
}

impl User {
    /// Looks up the user called `name`. If `name` is `None` and the agent runs as root, chooses the
    /// first of [`USERS`] that exists. Otherwise, the agent keeps its user.
    pub(super) fn chosen(name: Option<&str>) -> Result<Self, Failure> {
        let find = |name: &str| unistd::User::from_name(name).ok().flatten();
        let becomes = match name {
            Some(name) => {
                let user = find(name).ok_or_else(|| {
                    Failure::Arguments(format!(
                        "unknown user `{name}`: choose one listed by `getent passwd`, or create \
                         the user"
                    ))
                })?;
                if !geteuid().is_root() && user.uid != geteuid() {
                    return Err(Failure::Arguments(format!(
                        "only root can switch to user `{name}`: omit --user, or run as root"
                    )));
                }
                Some(user)
            }
            None if geteuid().is_root() => USERS.into_iter().find_map(find),
            None => None,
        };
        Ok(Self { becomes })
    }

    /// Creates the directory `path` for the agent's user if it is missing and only root can create
    /// it. The agent's user becomes the owner of `path`. Any missing parent directories are created
    /// as well, and belong to root.
    ///
    /// If the agent's user owns the nearest existing parent, this does nothing: that user creates
    /// the rest later, without root's rights. Root creates directories only if nobody else can swap
    /// an entry of the path, and works through directory handles.
    pub(super) fn make_folder(&self, path: &Path, mode: u32) -> Result<(), Failure> {
        let failed = |error: &io::Error| {
            let why = error_words(error);
            Failure::Agent(format!("cannot create {}: {why}", path.display()))
        };
        let nearest = Nearest::find(path).map_err(|error| failed(&error))?;
        let owner = nearest.folder.owner().map_err(|error| failed(&error))?;
        let Some((last, parents)) = nearest.missing.split_last() else {
            return self.check_owner(path, owner);
        };
        match self.user_to_become() {
            Some(user) if user.uid.as_raw() != owner => {
                let place = nearest.folder.path();
                make_for(user, place, parents, last, mode).map_err(|error| failed(&error))
            }
            _ => Ok(()),
        }
    }

    /// Rejects an existing directory that belongs to another user, because the agent could not
    /// write to it.
    fn check_owner(&self, path: &Path, owner: u32) -> Result<(), Failure> {
        let owner = Uid::from_raw(owner);
        if owner == self.number() {
            return Ok(());
        }
        let (owner, user) = (user_name(owner), user_name(self.number()));
        let path = path.display();
        Err(Failure::Agent(format!(
            "{path} belongs to {owner}, but the agent runs as {user}: choose another directory, \
             or remove this one"
        )))
    }

    /// Returns the agent's UID after it has switched users.
    fn number(&self) -> Uid {
        self.becomes.as_ref().map_or_else(geteuid, |user| user.uid)
    }

    pub(super) fn user_to_become(&self) -> Option<&unistd::User> {
        let becomes = self.becomes.as_ref();
        becomes.filter(|user| user.uid != geteuid())
    }

    /// Switches all threads to this user, and drops the capabilities of the calling thread. Probe
    /// threads drop their capabilities themselves.
    pub(super) fn become_user(&self) -> Result<(), Failure> {
        let failed = |what: &str| {
            Failure::Agent(format!(
                "cannot drop {what}: choose another --user, or start the agent as an ordinary user \
                 with CAP_BPF, CAP_PERFMON and CAP_SYSLOG"
            ))
        };
        if let Some(user) = self.user_to_become() {
            let became = setgroups(&[user.gid])
                .and_then(|()| setresgid(user.gid, user.gid, user.gid))
                .and_then(|()| setresuid(user.uid, user.uid, user.uid));
            became.map_err(|_| failed("root's rights"))?;
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
        set_no_new_privs().map_err(|_| failed("the right to gain privileges"))
    }

    pub(super) fn failure(&self, error: &dyn Display) -> Failure {
        Failure::Agent(match &self.becomes {
            Some(user) => format!("{error} (as user {})", user.name),
            None => error.to_string(),
        })
    }
}

struct Nearest {
    folder: Folder,
    /// Names of the missing directories below `folder`, outermost first.
    missing: Vec<OsString>,
}

impl Nearest {
    fn find(path: &Path) -> io::Result<Self> {
        let mut missing = Vec::new();
        let mut place = path;
        loop {
            match Folder::open(place) {
                Ok(folder) => {
                    missing.reverse();
                    return Ok(Self { folder, missing });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            // A path that ends in `..` has no file name, so it is rejected.
            let name = place.file_name().ok_or(io::ErrorKind::NotFound)?;
            missing.push(name.to_owned());
            place = place.parent().ok_or(io::ErrorKind::NotFound)?;
        }
    }
}

/// Creates the missing `parents` below `place` and, inside them, the directory `last`. Root owns
/// the parents, and `user` owns `last`. Fails if a user other than root can change `place`.
fn make_for(
    user: &unistd::User,
    place: &Path,
    parents: &[OsString],
    last: &OsStr,
    mode: u32,
) -> io::Result<()> {
    let mut folder = Folder::open_guarded(place)?;
    for name in parents {
        folder = folder.make_new(name, 0o755)?;
    }
    let given = folder.make_new(last, 0o700)?;
    fchown(&given, Some(user.uid), Some(user.gid))?;
    Ok(fchmod(&given, Mode::from_bits_truncate(mode))?)
}

fn user_name(number: Uid) -> String {
    match unistd::User::from_uid(number) {
        Ok(Some(user)) => user.name,
        _ => format!("user {number}"),
    }
}
