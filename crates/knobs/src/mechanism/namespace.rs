//! A file that is another one in each network namespace: a thread that has entered the namespace reads and
//! writes it.

use std::fs::File;
use std::path::Path;

use nix::sched::{CloneFlags, setns};

use crate::error::Trouble;
use crate::system::System;
use crate::target::Target;

pub(super) fn read(system: &System, target: &Target, path: &str) -> Result<String, Trouble> {
    within(system, target, || super::file::read(system, path))
}

pub(super) fn write(
    system: &System,
    target: &Target,
    path: &str,
    value: &str,
) -> Result<(), Trouble> {
    within(system, target, || super::file::write(system, path, value))
}

/// Does it in the namespace: a thread of its own enters, and ends, so that nothing else is there.
fn within<T: Send>(
    system: &System,
    target: &Target,
    act: impl FnOnce() -> Result<T, Trouble> + Send,
) -> Result<T, Trouble> {
    let Target::Net(place) = target else {
        return Err(Trouble::new(format!("{target} is no network namespace")));
    };
    // Whoever is there already needs no right to enter.
    if target.presence(system) == Target::Net("/proc/self/ns/net".into()).presence(system) {
        return act();
    }
    let entered = || {
        enter(&system.path(place))?;
        act()
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(entered);
        thread
            .join()
            .unwrap_or_else(|_| Err(Trouble::new("the thread that entered it failed")))
    })
}

fn enter(place: &Path) -> Result<(), Trouble> {
    let cannot = |why: String| Trouble::new(format!("cannot enter {}: {why}", place.display()));
    let file = File::open(place).map_err(|error| cannot(error.kind().to_string()))?;
    setns(file, CloneFlags::CLONE_NEWNET)
        .map_err(|errno| cannot(Trouble::of_call(errno).to_string()))
}
