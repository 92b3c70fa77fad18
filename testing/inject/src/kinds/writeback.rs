//! `writeback`: the dirty pages of a file are written to disk.
//!
//! The thread dirties pages and waits until they are on disk, so the writes are submitted under its
//! name. They complete as interrupts and `BLOCK` softirqs, on a CPU that the driver chooses.
//! `fsync` also wakes the file system's journal thread. The file is unlinked before anything is
//! written, so nothing is left behind.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use crate::clock;
use crate::control::{Arm, Control};
use crate::counters::CounterWatch;
use crate::error::InjectError;
use crate::place;
use crate::plan::Plan;
use crate::sys;
use crate::truth::{Count, Event, Measured, Truth};

use super::{thread, truth_of};

pub(super) fn run(
    plan: &Plan,
    dir: &Path,
    bytes: u32,
    fsync: bool,
    control: &Control,
) -> Result<Truth, InjectError> {
    place::pin(place::SELF, plan.cpu)?;
    let file = nameless(dir)?;
    let failed = |e| {
        let tried = format!("write to a file in {}", dir.display());
        InjectError::io(
            tried,
            &e,
            "check that the disk has room, or choose another --dir",
        )
    };
    let data = vec![b't'; bytes as usize];

    let counter = CounterWatch::softirqs("BLOCK", plan.cpu);
    let walk = control.walk(plan, Arm::WhenEarly, |due, _| {
        let (start, before) = (clock::now(), clock::thread_cpu());
        file.write_all_at(&data, 0).map_err(failed)?;
        if fsync {
            file.sync_all().map_err(failed)?;
        } else {
            sys::write_pages(&file).map_err(|e| failed(e.into()))?;
        }
        let cpu_time = Some(clock::thread_cpu() - before);
        Ok(Event {
            due,
            start,
            length: clock::now() - start,
            cpu_time,
        })
    })?;

    let (cpu, passed, writes) = (walk.log.cpu_time, walk.log.length, walk.log.happened);
    let account = thread(plan.disturbance.comm());
    let mut truth = truth_of(plan, walk, account, &["BLOCK", "the disk's interrupt"]);
    let method = "CLOCK_THREAD_CPUTIME_ID around each write and its sync";
    truth.injected = Some(Measured::new(cpu, method));
    let method = "CLOCK_MONOTONIC around each write and its sync, with the wait for the disk";
    truth.measured.push(Measured::new(passed, method));
    truth.counts.push(Count {
        name: "bytes written".into(),
        value: writes * u64::from(bytes),
    });
    truth.counts.extend(counter.end());
    Ok(truth)
}

/// Creates a file in `dir` and immediately unlinks it.
fn nameless(dir: &Path) -> Result<File, InjectError> {
    let path = dir.join(format!("ticktax-inject-{}", nix::unistd::gettid()));
    let failed = |e| {
        let hint = "choose a --dir that exists and may be written to";
        InjectError::io(format!("make {}", path.display()), &e, hint)
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(failed)?;
    fs::remove_file(&path).map_err(failed)?;
    let on = fstatfs(&file).map_err(|e| failed(e.into()))?;
    if on.filesystem_type() == TMPFS_MAGIC {
        return Err(InjectError::Refused {
            kind: "writeback",
            why: format!(
                "cannot write back {}, which is a tmpfs: choose a --dir on a disk",
                dir.display()
            ),
        });
    }
    Ok(file)
}
