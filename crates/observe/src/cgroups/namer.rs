//! Names the groups that appear during a session, on a separate thread.
//!
//! A container's names disappear soon after it ends, so they are looked up as soon as its cgroup
//! gets its first process. A separate thread does this because the thread that reads the tracer's
//! buffers must not wait for a container runtime's files.

use std::collections::HashSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use ticktax_host::{NamedGroups, Proc, own_thread_cpu_time};
use ticktax_model::Nanos;

/// Maximum number of groups looked up during a session. Any others are looked up at the end, if
/// they still exist.
const MAX_LOOKUPS: usize = 20_000;

/// Looks up names. Starts its thread on the first lookup.
#[derive(Debug)]
pub(super) struct Namer {
    proc: Proc,
    requested: HashSet<String>,
    thread: Option<Thread>,
}

#[derive(Debug)]
struct Thread {
    paths: Sender<String>,
    handle: JoinHandle<(NamedGroups, Nanos)>,
}

impl Namer {
    pub(super) fn new(proc: &Proc) -> Self {
        Self {
            proc: proc.clone(),
            requested: HashSet::new(),
            thread: None,
        }
    }

    /// Requests the name of the group that the cgroup `path` belongs to. Returns immediately. If
    /// the thread cannot be started, the session looks up the name when it ends.
    pub(super) fn request(&mut self, path: &str) {
        let is_known = self.requested.contains(path) || self.requested.len() >= MAX_LOOKUPS;
        if is_known || !self.requested.insert(path.to_owned()) {
            return;
        }
        if self.thread.is_none() {
            self.thread = Thread::start(self.proc.clone());
        }
        if let Some(thread) = &self.thread {
            // The thread ends only when the sender is dropped.
            let _ = thread.paths.send(path.to_owned());
        }
    }

    /// Waits for the requested names. Also returns the CPU time that the lookups took.
    pub(super) fn finish(self) -> (NamedGroups, Nanos) {
        let Some(Thread { paths, handle }) = self.thread else {
            return (NamedGroups::default(), Nanos::ZERO);
        };
        drop(paths);
        handle.join().unwrap_or_default()
    }
}

impl Thread {
    fn start(proc: Proc) -> Option<Self> {
        let (paths, requests) = channel();
        let thread = Builder::new().name("ticktax-names".to_owned());
        let handle = thread.spawn(move || look_up(&proc, &requests)).ok()?;
        Some(Self { paths, handle })
    }
}

fn look_up(proc: &Proc, requests: &Receiver<String>) -> (NamedGroups, Nanos) {
    let mut all = NamedGroups::default();
    while let Ok(first) = requests.recv() {
        // Look up all waiting requests together, because they often need the same files.
        let mut paths = vec![first];
        paths.extend(requests.try_iter());
        let named = proc.groups(paths.iter().map(String::as_str));
        all.groups.extend(named.groups);
        all.unnamed = all.unnamed.max(named.unnamed);
    }
    (all, own_thread_cpu_time())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ticktax_host::Proc;

    use super::Namer;

    #[test]
    fn requested_groups_are_named_once() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc")).unwrap();
        let passwd = "alice:x:1000:1000::/home/alice:/bin/sh\n";
        fs::write(root.path().join("etc/passwd"), passwd).unwrap();
        let mut namer = Namer::new(&Proc::at(root.path()));
        let session = "/user.slice/user-1000.slice/session-3.scope";
        for path in [session, "/a.service", session, "/mine"] {
            namer.request(path);
        }
        let (named, _) = namer.finish();
        let names: Vec<String> = named.groups.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a.service", "/mine", "session 3 of alice"]);
        assert_eq!(named.unnamed, None);
    }

    #[test]
    fn without_a_request_no_thread_starts() {
        let namer = Namer::new(&Proc::default());
        assert!(namer.thread.is_none());
        assert!(namer.finish().0.groups.is_empty());
    }
}
