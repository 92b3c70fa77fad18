//! Tests for an agent that root starts: which directories and sockets its user gets, and which ones
//! are refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use libtest_mimic::Failed;

use super::running::{AS_NOBODY, Agent};
use super::{NOBODY, complaint, status};
use crate::fixture::check;

/// A user who is neither root nor the agent's user.
const SOMEBODY: u32 = 4_321;

/// Creates a directory that belongs to root and is readable by every user.
fn place_for_root() -> Result<tempfile::TempDir, Failed> {
    let place = tempfile::Builder::new()
        .prefix("ticktax-test")
        .tempdir_in("/tmp")?;
    fs::set_permissions(place.path(), Permissions::from_mode(0o755))?;
    Ok(place)
}

fn is_owned(path: &Path, owner: u32, mode: u32) -> Result<(), Failed> {
    let facts = fs::symlink_metadata(path)?;
    let found = (facts.uid(), facts.mode() & 0o7777);
    check(found == (owner, mode), || {
        let (uid, mode) = found;
        format!("{}: {mode:o} of {uid}", path.display())
    })
}

fn is_refused(arguments: &[&str], why: &str) -> Result<(), Failed> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktax"));
    command.args(["agent", "--user", "nobody", "--for", "1s"]);
    let errors = complaint(command.args(arguments))?;
    check(errors.contains(why), || errors.clone())
}

pub(crate) fn parents_of_its_folders_stay_roots() -> Result<(), Failed> {
    let place = place_for_root()?;
    let state = place.path().join("state");
    let (facts, incidents) = (state.join("deep/facts"), state.join("incidents"));
    let shown = |path: &Path| path.display().to_string();
    let folders = ["--facts", &shown(&facts), "--incidents", &shown(&incidents)];
    let arguments = [&AS_NOBODY[..], &["--trigger", "signal"], &folders].concat();
    for _ in 0..2 {
        // The second agent must accept the directories that the first one created.
        let mut agent = Agent::start(&arguments)?;
        agent.page_when("ticktax_recorded_seconds_total")?;
        for folder in [place.path(), &state, &state.join("deep")] {
            is_owned(folder, 0, 0o755)?;
        }
        is_owned(&facts, NOBODY, 0o750)?;
        is_owned(&incidents, NOBODY, 0o700)?;
        is_owned(&incidents.join("mark.sock"), NOBODY, 0o600)?;
        agent.stops_with_balanced_accounts()?;
    }
    Ok(())
}

pub(crate) fn folders_of_other_users_are_refused() -> Result<(), Failed> {
    let place = place_for_root()?;
    let others = place.path().join("others");
    fs::create_dir(&others)?;
    let belongs = format!("belongs to user {SOMEBODY}");
    for (owner, why) in [(SOMEBODY, &*belongs), (0, "belongs to root")] {
        chown(&others, Some(owner), Some(owner))?;
        let folder = others.display().to_string();
        is_refused(&["--listen", "none", "--facts", &folder], why)?;
        is_owned(&others, owner, 0o755)?;
    }
    // Root must not create files in this directory, because its owner could swap them.
    chown(&others, Some(SOMEBODY), Some(SOMEBODY))?;
    for name in ["incidents", "deep/incidents"] {
        let folder = others.join(name).display().to_string();
        let incidents = ["--trigger", "signal", "--incidents", &folder];
        is_refused(&[&["--listen", "none"], &incidents[..]].concat(), &belongs)?;
    }
    let socket = format!("unix:{}", others.join("socket").display());
    is_refused(&["--listen", &socket], &belongs)?;
    check(fs::read_dir(&others)?.next().is_none(), || {
        "something was made".to_owned()
    })
}

pub(crate) fn links_in_place_of_its_folder_or_socket_are_not_followed() -> Result<(), Failed> {
    let place = place_for_root()?;
    let victim = place.path().join("victim");
    fs::create_dir(&victim)?;
    drop(UnixListener::bind(victim.join("socket"))?);
    let link = place.path().join("link");
    let shown = link.display().to_string();
    // Try a link to a directory that belongs to root, and a link that leads nowhere.
    for target in [victim.clone(), place.path().join("nowhere")] {
        symlink(target, &link)?;
        is_refused(&["--listen", "none", "--facts", &shown], "ticktax: ")?;
        fs::remove_file(&link)?;
    }
    symlink(victim.join("socket"), &link)?;
    let socket = format!("unix:{shown}");
    is_refused(&["--listen", &socket], "cannot listen on")?;
    check(link.is_symlink(), || "the link is gone".to_owned())?;
    is_owned(&victim, 0, 0o755)?;
    is_owned(&victim.join("socket"), 0, 0o755)
}

pub(crate) fn its_socket_belongs_to_its_user_in_every_folder() -> Result<(), Failed> {
    let place = place_for_root()?;
    let own = place.path().join("own");
    fs::create_dir(&own)?;
    chown(&own, Some(NOBODY), Some(NOBODY))?;
    for (folder, is_removed) in [(place.path(), false), (&own, true)] {
        let socket = folder.join("socket");
        let listen = format!("unix:{}", socket.display());
        let agent = Agent::start(&["--user", "nobody", "--listen", &listen])?;
        is_owned(&socket, NOBODY, 0o660)?;
        UnixStream::connect(&socket)?;
        agent.stops_with_balanced_accounts()?;
        check(socket.exists() != is_removed, || listen.clone())?;
    }
    Ok(())
}

pub(crate) fn its_threads_are_filtered_and_have_no_bounding_set() -> Result<(), Failed> {
    let place = place_for_root()?;
    let folder = place.path().join("incidents").display().to_string();
    let triggers = ["--trigger", "gap>1m", "--incidents", &folder];
    let mut agent = Agent::start(&[&AS_NOBODY[..], &triggers].concat())?;
    agent.page_when("ticktax_recorded_seconds_total")?;
    let mut threads = 0;
    for task in fs::read_dir(format!("/proc/{}/task", agent.pid()))? {
        let name = task?.file_name();
        let status = status(name.to_str().ok_or("no number")?.parse()?)?;
        check(status["CapBnd"] == "0000000000000000", || {
            format!("{}: CapBnd {}", status["Name"], status["CapBnd"])
        })?;
        check(status["Seccomp"] == "2", || {
            format!("{}: Seccomp {}", status["Name"], status["Seccomp"])
        })?;
        threads += 1;
    }
    check(threads > 2, || format!("{threads} threads"))?;
    agent.stops_with_balanced_accounts()
}

/// Runs `agent`, `record` and `incidents` in several orders. Each time, `/var/lib` is a new, empty
/// file system, mounted in a separate mount namespace.
pub(crate) fn state_folders_work_in_any_order() -> Result<(), Failed> {
    let script = "mount -t tmpfs -o mode=755 none /var/lib || exit 9
                  agent() { \"$1\" agent --listen none --user nobody --trigger signal --for 1s; }
                  record() { \"$1\" record --trigger signal --for 1s; }
                  for verb in $2; do $verb \"$1\" >&2 || exit 8; \"$1\" incidents | head -1 || exit 7; done
                  stat -c '%n %u %a' /var/lib/ticktax* /var/lib/ticktax*/*";
    for order in ["agent record", "record agent"] {
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", script, "sh"])
            .args([env!("CARGO_BIN_EXE_ticktax"), order])
            .output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        check(output.status.success(), || format!("{order}: {errors}"))?;
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        // The first `incidents` command must show the agent's directory if the agent ran first, and
        // must not show it otherwise.
        let first = out.lines().next().unwrap_or_default().to_owned();
        let is_agents = first.contains("/var/lib/ticktax-agent/incidents");
        check(is_agents == order.starts_with("agent"), || out.clone())?;
        for line in [
            "/var/lib/ticktax-agent 0 755".to_owned(),
            format!("/var/lib/ticktax-agent/incidents {NOBODY} 700"),
            "/var/lib/ticktax/incidents 0 700".to_owned(),
        ] {
            check(out.lines().any(|printed| printed == line), || {
                format!("{order}: no `{line}` in\n{out}{errors}")
            })?;
        }
    }
    Ok(())
}
