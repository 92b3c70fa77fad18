//! Tests that a session recognizes groups that exist only while it is running.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use libtest_mimic::Failed;
use ticktax_host::Proc;
use ticktax_model::Nanos;
use ticktax_model::recording::Header;
use ticktax_observe::{Event, Plan, ProbeChoice, Session};

/// A cgroup named like a service. Dropping this removes it.
struct Service {
    name: String,
    folder: PathBuf,
}

impl Service {
    fn create(hierarchy: &std::path::Path, name: &str) -> Result<Self, Failed> {
        let name = format!("ticktax-test-{}-{name}.service", std::process::id());
        let folder = hierarchy.join(&name);
        fs::create_dir(&folder)?;
        Ok(Self { name, folder })
    }

    /// Runs a shell in the group, which starts a child there. Returns the process IDs of the shell
    /// and of the child.
    fn run(&self) -> Result<[i32; 2], Failed> {
        let script = r#"echo $$ > "$0/cgroup.procs"; sh -c 'echo $$'; exit 0"#;
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(&self.folder);
        let shell = shell.stdout(Stdio::piped()).spawn()?;
        let pid = i32::try_from(shell.id())?;
        let output = shell.wait_with_output()?;
        let child = String::from_utf8(output.stdout)?;
        Ok([pid, child.trim().parse()?])
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Ignore errors: a directory left behind does no harm.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Drives a session for 600 ms, and calls `act` once after its first events.
fn session(act: impl FnOnce() -> Result<(), Failed>) -> Result<Header, Failed> {
    let mut session = Session::start(Plan {
        length: Some(Nanos::from_millis(600)),
        probe: ProbeChoice::None,
        ..Plan::default()
    })?;
    let mut act = Some(act);
    loop {
        match session.next_event() {
            Event::Ended(header) => return Ok(*header),
            Event::Progress(_) => {
                if let Some(act) = act.take() {
                    act()?;
                }
            }
            _ => {}
        }
    }
}

/// A group that is created, used and removed between two reads of the buffers must still have its
/// name and its processes. So must a group that already existed and that a process then entered.
pub(crate) fn short_lived_groups() -> Result<(), Failed> {
    let hierarchy = Proc::default().cpu_hierarchy().ok_or("no cgroups")?;
    let hierarchy = hierarchy.folder().ok_or("no mounted cgroups")?;
    let old = Service::create(hierarchy, "old")?;
    let (mut name, mut in_new, mut in_old) = (String::new(), [0; 2], [0; 2]);
    let header = session(|| {
        let new = Service::create(hierarchy, "new")?;
        in_new = new.run()?;
        name.clone_from(&new.name);
        drop(new);
        in_old = old.run()?;
        Ok(())
    })?;
    let unseen = format!("{:?}", header.coverage.limitations);
    let cgroups = header.cgroups.ok_or("no cgroups in the header")?;
    for (name, pids) in [(&name, in_new), (&old.name, in_old)] {
        let path = format!("/{name}");
        let group = header.groups.group_of(&path).map(ToString::to_string);
        if group.as_ref() != Some(name) {
            return Err(format!("{path} is named {group:?}: {unseen}").into());
        }
        let known = cgroups.get(&path).ok_or("the group has no processes")?;
        if pids.iter().any(|pid| !known.contains(pid)) {
            return Err(format!("{pids:?} are not all in {known:?}: {unseen}").into());
        }
        let mut moves = header.group_moves.iter();
        let moved = moves.find(|moved| moved.pid == pids[0] && moved.to == path);
        let moved = moved.ok_or("the move was not noticed")?;
        if moved.at.is_none() || moved.tid.is_some() {
            return Err(format!("{moved:?}").into());
        }
        if header.group_moves.iter().any(|moved| moved.pid == pids[1]) {
            return Err("the child did not start in the group".into());
        }
    }
    Ok(())
}
