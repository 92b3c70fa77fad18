//! Temporary cgroups for the commands in trials: chooses where to create one, prepares it so that a
//! process can join it, and removes it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::cgroup::Cgroup;
use crate::error::KnobError;
use crate::system::{Outside, System};

/// Prefix of the names of cgroups that ticktax creates. A PID follows.
const PREFIX: &str = "ticktax-try-";
/// File that lists a cgroup's processes. Writing a PID to it moves that process into the cgroup.
const PROCS: &str = "cgroup.procs";

/// A cgroup controller. It determines which settings a cgroup has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// CPU time, with quotas and weights.
    Cpu,
    /// The set of CPUs that processes may use.
    Cpuset,
}

/// Number of attempts to remove a cgroup, [`MOMENT`] apart. After a process has exited, the kernel
/// can take a while to remove it from its cgroup.
const TRIES: u32 = 250;
const MOMENT: Duration = Duration::from_millis(2);

impl Controller {
    /// Returns the controller that provides the setting `id`.
    pub fn of_knob(id: &str) -> Self {
        if id.starts_with("cgroup.cpuset") {
            Self::Cpuset
        } else {
            Self::Cpu
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuset => "cpuset",
        }
    }
}

/// Returns the directory of the cgroup (v1 or v2) whose `controller` settings apply to process
/// `pid`.
///
/// # Errors
/// Returns an error if the controller is not mounted, or if the process has exited.
pub fn of_process(system: &System, pid: i32, controller: Controller) -> Result<PathBuf, KnobError> {
    let name = controller.name();
    let error = |why: String| KnobError::Group {
        what: format!("find the cgroup of process {pid}"),
        why,
    };
    let text = system
        .text(format!("proc/{pid}/cgroup"))
        .map_err(|_| error("no such process; it might have ended".to_owned()))?;
    let mounts = system.text("proc/self/mounts").unwrap_or_default();
    let root = hierarchy(system, &mounts, name).ok_or_else(|| {
        error(format!(
            "no cgroup hierarchy with the {name} controller is mounted; mount one, for example \
             cgroup2 on /sys/fs/cgroup"
        ))
    })?;
    let group = member(&text, name, root.version);
    let group = group.ok_or_else(|| {
        error(format!(
            "the kernel lists no cgroup with the {name} controller \
            for it"
        ))
    })?;
    if group.split('/').any(|component| component == "..") {
        return Err(error(
            "it is outside this cgroup namespace; run ticktax on the host".to_owned(),
        ));
    }
    Ok(match group.trim_start_matches('/') {
        "" => root.folder,
        group => root.folder.join(group),
    })
}

/// Version of the cgroup interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    folder: PathBuf,
}

fn hierarchy(system: &System, mounts: &str, controller: &str) -> Option<Hierarchy> {
    let has = |text: &str| text.split_whitespace().any(|word| word == controller);
    mounts.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (folder, kind, options) = (words.next()?, words.next()?, words.next()?);
        let folder = PathBuf::from(folder);
        match kind {
            "cgroup" if options.split(',').any(|option| option == controller) => Some(Hierarchy {
                version: Version::V1,
                folder,
            }),
            "cgroup2" => {
                let offered = system.text(folder.join("cgroup.controllers")).ok()?;
                has(&offered).then_some(Hierarchy {
                    version: Version::V2,
                    folder,
                })
            }
            _ => None,
        }
    })
}

/// Finds the path of a process's cgroup in the hierarchy that has `controller`. `text` is the
/// contents of `/proc/PID/cgroup`. Returns `None` if there is no such hierarchy in it.
fn member<'a>(text: &'a str, controller: &str, version: Version) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_member = match version {
            Version::V1 => controllers.split(',').any(|name| name == controller),
            Version::V2 => controllers.is_empty(),
        };
        is_member.then_some(path)
    })
}

/// Location of a temporary cgroup: its directory (`folder`), and the cgroup that its processes
/// return to when it is removed (`home`).
///
/// The directory is always called `ticktax-try-N`, and its parent is `home` or an ancestor of
/// `home`. Journal records with any other directory are rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupPath {
    pub(crate) folder: PathBuf,
    pub(crate) home: PathBuf,
}

/// A [`GroupPath`] with its directories opened.
struct Site<'a> {
    parent: Cgroup,
    name: &'a OsStr,
    /// The cgroup that the processes return to, or `None` if it no longer exists.
    home: Option<Cgroup>,
}

impl GroupPath {
    /// Opens `home` and the parent of the temporary cgroup, without following symbolic links. Fails
    /// if ticktax would never create a cgroup at this path.
    fn site(&self, system: &System) -> io::Result<Site<'_>> {
        let name = self.folder.file_name().filter(|name| is_own(name));
        let parent = self.folder.parent();
        let parent = parent.filter(|parent| self.home.starts_with(parent));
        let (Some(name), Some(parent)) = (name, parent) else {
            return Err(Outside::Own.into());
        };
        let home = match Cgroup::walk(system, &self.home) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened?),
        };
        let parent = Cgroup::walk(system, parent)?;
        Ok(Site { parent, name, home })
    }

    fn error(&self, verb: &str, error: &io::Error) -> KnobError {
        KnobError::Group {
            what: format!("{verb} {}", self.folder.display()),
            why: words(error),
        }
    }
}

impl Site<'_> {
    /// Moves the processes in the temporary cgroup to `home`. Ignores processes that cannot be
    /// moved, because they may have exited. If one of them is in fact still running, removing the
    /// cgroup fails and reports this.
    fn send_home(&self) -> io::Result<()> {
        let group = self.parent.child(self.name)?;
        if let Some(home) = &self.home {
            for pid in group.text(PROCS).unwrap_or_default().lines() {
                let _ = home.put(PROCS, pid);
            }
        }
        Ok(())
    }
}

/// Returns whether `name` looks like a name that ticktax gives to the cgroups it creates.
fn is_own(name: &OsStr) -> bool {
    let number = name.as_bytes().strip_prefix(PREFIX.as_bytes());
    number.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

/// Chooses where to create a temporary cgroup: in this process's own cgroup if that delegates the
/// controller to its children, otherwise in the nearest ancestor that does.
pub(crate) fn place(system: &System, controller: Controller) -> Result<GroupPath, KnobError> {
    let pid = i32::try_from(std::process::id()).unwrap_or(-1);
    let home = of_process(system, pid, controller)?;
    let name = format!("{PREFIX}{pid}");
    let mut above = home.ancestors();
    let parent = above.find(|folder| {
        let given = system.text(folder.join("cgroup.subtree_control"));
        // cgroup v1 has no `cgroup.subtree_control` file, because every child gets the controller.
        let is_v1 = || system.path(folder.join("tasks")).exists();
        given.map_or_else(
            |_| is_v1(),
            |list| {
                list.split_whitespace()
                    .any(|word| word == controller.name())
            },
        )
    });
    let parent = parent.ok_or_else(|| KnobError::Group {
        what: "create a cgroup for the command".to_owned(),
        why: format!(
            "no cgroup above {} gives its children the {} controller; write +{1} to \
             cgroup.subtree_control of its parent",
            home.display(),
            controller.name(),
        ),
    })?;
    let place = GroupPath {
        folder: parent.join(name),
        home,
    };
    // Check this before the journal records the cgroup. Otherwise, the record of an invalid cgroup
    // would make every later undo fail.
    if let Err(error) = place.site(system) {
        return Err(place.error("create", &error));
    }
    Ok(place)
}

/// Creates the cgroup unless it exists, and prepares it so that processes can join it.
pub(crate) fn make(system: &System, place: &GroupPath) -> Result<(), KnobError> {
    let make = || -> io::Result<()> {
        let site = place.site(system)?;
        let group = site.parent.make(site.name)?;
        // In cgroup v1, a new cpuset has no CPUs and no memory nodes, and no process can join it
        // until it has both.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let is_empty = group.text(file).is_ok_and(|text| text.is_empty());
            if let (true, Ok(value)) = (is_empty, site.parent.text(file))
                && !value.is_empty()
            {
                group.put(file, &value)?;
            }
        }
        Ok(())
    };
    make().map_err(|error| place.error("create", &error))
}

pub(crate) fn join(system: &System, folder: &Path, pid: i32) -> Result<(), KnobError> {
    let group = Cgroup::walk(system, folder);
    let put = group.and_then(|group| group.put(PROCS, &pid.to_string()));
    put.map_err(|error| KnobError::Group {
        what: format!("move process {pid} into {}", folder.display()),
        why: words(&error),
    })
}

/// Moves the cgroup's processes to `home` and removes the cgroup. Does nothing if the cgroup no
/// longer exists. Fails if ticktax would never create a cgroup at this path.
pub(crate) fn dissolve(system: &System, place: &GroupPath) -> Result<(), KnobError> {
    let site = match place.site(system) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(|error| place.error("remove", &error))?,
    };
    let mut tries = 0;
    loop {
        match site
            .send_home()
            .and_then(|()| site.parent.remove(site.name))
        {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if tries == TRIES || is_refusal(&error) => {
                return Err(place.error("remove", &error));
            }
            Err(_) => sleep(MOMENT),
        }
        tries += 1;
    }
}

/// Returns whether retrying is useless because the path contains a symbolic link or does not lead
/// to a cgroup.
fn is_refusal(error: &io::Error) -> bool {
    error.get_ref().is_some() || error.kind() == io::ErrorKind::NotADirectory
}

fn words(error: &io::Error) -> String {
    match (error.get_ref(), error.kind()) {
        (Some(own), _) => own.to_string(),
        (_, io::ErrorKind::NotADirectory) => {
            "part of its path is a symbolic link or file, so it was left unchanged".to_owned()
        }
        (_, io::ErrorKind::PermissionDenied) => "permission denied; run as root".to_owned(),
        (_, io::ErrorKind::ReadOnlyFilesystem) => {
            "the file system is read-only, as in a container; run on the host".to_owned()
        }
        (_, io::ErrorKind::ResourceBusy) => "it still contains a process".to_owned(),
        (_, kind) => kind.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::{Controller, GroupPath, dissolve, join, make, of_process, place};
    use crate::System;
    use crate::fixture::Machine;

    const V1: &str = "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
";
    const V2: &str = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";

    fn machine(mounts: &str, cgroup: &str) -> Machine {
        let machine = Machine::new();
        machine.put("proc/self/mounts", mounts);
        let own_file = format!("proc/{}/cgroup", std::process::id());
        for file in ["proc/7/cgroup", &own_file] {
            machine.put(file, cgroup);
        }
        machine
    }

    #[test]
    fn a_processs_cgroup_is_found_in_both_versions() {
        let v1 = machine(V1, "4:cpuset:/set\n2:cpu,cpuacct:/a/b\n0::/c\n");
        v1.put("sys/fs/cgroup/unified/cgroup.controllers", "\n");
        let group_of =
            |machine: &Machine, controller| of_process(&machine.system(), 7, controller).ok();
        let cpu = Path::new("/sys/fs/cgroup/cpu,cpuacct/a/b");
        assert_eq!(group_of(&v1, Controller::Cpu).as_deref(), Some(cpu));
        let set = Path::new("/sys/fs/cgroup/cpuset/set");
        assert_eq!(group_of(&v1, Controller::Cpuset).as_deref(), Some(set));
        let v2 = machine(V2, "0::/user.slice/s\n");
        v2.put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io\n");
        let slice = Path::new("/sys/fs/cgroup/user.slice/s");
        assert_eq!(group_of(&v2, Controller::Cpu).as_deref(), Some(slice));
        v2.put("sys/fs/cgroup/cgroup.controllers", "io\n");
        let why = of_process(&v2.system(), 7, Controller::Cpu).unwrap_err();
        assert!(why.to_string().contains("mount one"), "{why}");
    }

    #[test]
    fn version_2_groups_are_created_where_the_controller_is_delegated() {
        let machine = machine(V2, "0::/user.slice/s\n");
        machine.put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io\n");
        for (group, given) in [
            ("", "cpu io"),
            ("/user.slice", "cpu"),
            ("/user.slice/s", ""),
        ] {
            let file = format!("sys/fs/cgroup{group}/cgroup.subtree_control");
            machine.put(&file, &format!("{given}\n"));
        }
        let found = place(&machine.system(), Controller::Cpu).unwrap();
        let folder = found.folder.parent();
        assert_eq!(folder, Some(Path::new("/sys/fs/cgroup/user.slice")));
        let why = place(&machine.system(), Controller::Cpuset).unwrap_err();
        assert!(why.to_string().contains("+cpuset"), "{why}");
    }

    #[test]
    fn version_1_groups_get_their_parents_cpus() {
        let machine = machine(V1, "4:cpuset:/\n");
        machine.put("sys/fs/cgroup/cpuset/tasks", "1\n");
        machine.put("sys/fs/cgroup/cpuset/cpuset.cpus", "0-1\n");
        machine.put("sys/fs/cgroup/cpuset/cpuset.mems", "0\n");
        let system = machine.system();
        let found = place(&system, Controller::Cpuset).unwrap();
        let file = |name: &str| {
            let folder = found.folder.strip_prefix("/").unwrap();
            folder.join(name).display().to_string()
        };
        // In a new v1 cpuset, these files are empty.
        machine.put(&file("cpuset.cpus"), "\n");
        machine.put(&file("cpuset.mems"), "\n");
        make(&system, &found).unwrap();
        assert_eq!(machine.text(&file("cpuset.cpus")), "0-1\n");
        assert_eq!(machine.text(&file("cpuset.mems")), "0\n");
    }

    #[test]
    fn missing_groups_count_as_removed() {
        let machine = Machine::new();
        let place = GroupPath {
            folder: "/cg/ticktax-try-7".into(),
            home: "/cg".into(),
        };
        dissolve(&machine.system(), &place).unwrap();
        machine.folder("cg");
        dissolve(&machine.system(), &place).unwrap();
        make(&machine.system(), &place).unwrap();
        assert!(machine.path("cg/ticktax-try-7").is_dir());
        dissolve(&machine.system(), &place).unwrap();
        assert!(!machine.path("cg/ticktax-try-7").exists());
    }

    #[test]
    fn only_ticktaxs_own_groups_are_created_and_removed() {
        let machine = Machine::new();
        machine.put("victim/cgroup.procs", "precious\n");
        for folder in ["cg/slice/ticktax-try-7", "cg/ticktax-try-8", "cg/other"] {
            machine.put(&format!("{folder}/cgroup.procs"), "666\n");
        }
        machine.put("cg/cgroup.procs", "");
        symlink(machine.path("cg"), machine.path("link")).unwrap();
        symlink(machine.path("victim"), machine.path("cg/ticktax-try-9")).unwrap();
        for (folder, home) in [
            // Names that ticktax never gives to a cgroup.
            ("/cg/other", "/cg"),
            ("/cg/ticktax-try-", "/cg"),
            ("/cg/ticktax-try-7x", "/cg"),
            ("/cg/ticktax-try-8/..", "/cg"),
            ("ticktax-try-8", ""),
            // Paths that lead elsewhere, because `home` is unrelated to the cgroup or because of
            // `..` or a symbolic link.
            ("/cg/ticktax-try-8", "/victim"),
            ("/cg/ticktax-try-8", "/cg/../victim"),
            ("/link/ticktax-try-8", "/link"),
            ("/cg/../cg/ticktax-try-8", "/cg/../cg"),
            ("/cg/ticktax-try-9", "/cg"),
        ] {
            let place = GroupPath {
                folder: folder.into(),
                home: home.into(),
            };
            let system = machine.system();
            for refused in [make(&system, &place), dissolve(&system, &place)] {
                let why = refused.expect_err(folder).to_string();
                assert!(why.contains("left unchanged"), "{folder}: {why}");
            }
        }
        assert_eq!(machine.text("victim/cgroup.procs"), "precious\n");
        assert_eq!(machine.text("cg/cgroup.procs"), "");
        assert!(machine.path("cg/ticktax-try-8").is_dir());
    }

    #[test]
    fn on_the_running_machine_groups_must_be_on_a_cgroup_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let group = root.join("ticktax-try-7");
        fs::create_dir(&group).unwrap();
        fs::write(group.join("cgroup.procs"), "attacker's text\n").unwrap();
        fs::write(root.join("cgroup.procs"), "precious\n").unwrap();
        let place = GroupPath {
            folder: group.clone(),
            home: root.clone(),
        };
        let system = System::default();
        for refused in [
            make(&system, &place),
            join(&system, &group, 7),
            dissolve(&system, &place),
        ] {
            let why = refused.unwrap_err().to_string();
            assert!(why.contains("not a cgroup directory"), "{why}");
        }
        let kept = fs::read_to_string(root.join("cgroup.procs"));
        assert_eq!(kept.unwrap(), "precious\n");
    }
}
