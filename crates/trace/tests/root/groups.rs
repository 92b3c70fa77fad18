//! Tests the watch on cgroups.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libtest_mimic::Failed;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use ticktax_trace::{GroupChange, GroupEvent, TraceSettings};

use super::load;

/// Number of the cgroup v2 hierarchy. It exists on every kernel, mounted or not.
const VERSION_2: u32 = 0;

/// A private mount of the hierarchy, with a cgroup in it. Both are removed when this is dropped.
struct Hierarchy {
    mount: tempfile::TempDir,
    path: String,
    /// Cgroup of this process before the test.
    before: String,
}

impl Hierarchy {
    fn new() -> Result<Self, Failed> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let before = own.lines().find_map(|line| line.strip_prefix("0::"));
        let hierarchy = Self {
            mount: tempfile::tempdir()?,
            path: format!("/ticktax-test-{}", std::process::id()),
            before: before.ok_or("no cgroup v2")?.to_owned(),
        };
        let (folder, none) = (hierarchy.mount.path(), None::<&str>);
        mount(none, folder, Some("cgroup2"), MsFlags::empty(), none)?;
        Ok(hierarchy)
    }

    fn folder(&self, path: &str) -> PathBuf {
        self.mount.path().join(path.trim_start_matches('/'))
    }
}

impl Drop for Hierarchy {
    fn drop(&mut self) {
        // Ignore errors: the test may have failed before these were created.
        let _ = enter(&self.folder(&self.before));
        let _ = fs::remove_dir(self.folder(&self.path));
        let _ = umount2(self.mount.path(), MntFlags::MNT_DETACH);
    }
}

/// Moves this process to the cgroup in `folder`.
fn enter(folder: &Path) -> std::io::Result<()> {
    fs::write(folder.join("cgroup.procs"), "0")
}

/// Creates, enters and leaves a cgroup, and starts a process in it. All of this must be reported,
/// in order.
pub(crate) fn changes_of_cgroups_are_reported() -> Result<(), Failed> {
    let settings = TraceSettings {
        group_hierarchy: Some(VERSION_2),
        ..TraceSettings::default()
    };
    let mut tracer = load(&settings)?;
    if let Some(refused) = tracer.groups_refused() {
        return Err(refused.to_string().into());
    }
    let hierarchy = Hierarchy::new()?;
    let folder = hierarchy.folder(&hierarchy.path);
    fs::create_dir(&folder)?;
    let id = fs::metadata(&folder)?.ino();
    enter(&folder)?;
    let mut child = Command::new("/proc/self/exe");
    let child = child.arg("--list").stdout(Stdio::null()).spawn()?;
    let pid = i32::try_from(child.id())?;
    child.wait_with_output()?;
    let own = i32::try_from(std::process::id())?;
    enter(&hierarchy.folder(&hierarchy.before))?;
    let events = tracer.take_group_events();
    let mut changes = events.iter().filter(|event| event.cgroup == id);
    let mut next = || changes.next().map(|event| event.change.clone());
    let path = || hierarchy.path.clone();
    let entered = GroupChange::Entered {
        path: path(),
        pid: own,
        tid: None,
    };
    let expected = [
        GroupChange::Created { path: path() },
        entered,
        GroupChange::Started { pid, tid: None },
    ];
    for expected in expected {
        let found = next();
        if found.as_ref() != Some(&expected) {
            return Err(format!("{found:?} instead of {expected:?} in {events:?}").into());
        }
    }
    let left = |event: &GroupEvent| match &event.change {
        GroupChange::Entered { path, pid, .. } => *path == hierarchy.before && *pid == own,
        _ => false,
    };
    if !events.iter().any(left) {
        return Err(format!("the move back is missing in {events:?}").into());
    }
    match tracer.group_events_lost() {
        0 => Ok(()),
        lost => Err(format!("{lost} events lost").into()),
    }
}
