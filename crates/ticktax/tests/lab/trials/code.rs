//! Checks the functions that are named for each stall of several situations.

use std::fs::File;

use libtest_mimic::Failed;
use ticktax_model::recording::{CodePlace, Effect, Stack, WaitCode};
use ticktax_model::victim::{OffCpu, OffCpuReason, PAGE_FAULT_ENTRY};
use ticktax_model::{Kind, Nanos};
use ticktax_symbols::{NamedPlaces, functions_at};

use super::Results;
use crate::checks::check;
use crate::checks::disturbances::is_of_thread;

/// Minimum length of the stalls that are checked. Shorter waits have no stack of the waker.
const LEAST: Nanos = Nanos::from_millis(1);

/// Name of the victims' program in the guest.
const PROGRAM: &str = "init";

/// Code in which threads stall. Names are those of Linux 6.1.
struct Code {
    situation: &'static str,
    /// Minimum number of stalls.
    stalls: u64,
    what: What,
}

enum What {
    /// The victim waits in this system call, in this function. If it waits for a lock, one of the
    /// system calls releases it.
    Wait(&'static str, &'static str, &'static [&'static str]),
    /// This thread runs in this system call or kernel thread, and in one of these functions.
    Run(&'static str, &'static str, &'static [&'static str]),
}

const ALL: &[Code] = &[
    Code {
        situation: "mmap-lock",
        stalls: 5,
        what: What::Wait("mmap", "rwsem_down_write_slowpath", &["mlock", "munmap"]),
    },
    Code {
        situation: "futex",
        stalls: 5,
        what: What::Wait("futex", "futex_wait_queue", &[]),
    },
    Code {
        situation: "interpreter",
        stalls: 40,
        what: What::Wait("futex", "futex_wait_queue", &[]),
    },
    Code {
        situation: "pipe",
        stalls: 40,
        what: What::Wait("read", "pipe_read", &[]),
    },
    Code {
        situation: "slow-server",
        stalls: 5,
        what: What::Wait("recvfrom", "unix_stream_read_generic", &[]),
    },
    Code {
        situation: "child",
        stalls: 3,
        what: What::Wait("wait4", "do_wait", &[]),
    },
    Code {
        situation: "atlas",
        stalls: 3,
        what: What::Wait("page_fault", "folio_wait_bit_common", &[]),
    },
    Code {
        situation: "memory-limit",
        stalls: 3,
        what: What::Wait("page_fault", "mem_cgroup_handle_over_high", &[]),
    },
    Code {
        situation: "long-call",
        stalls: 20,
        what: What::Run("long-call", "getrandom", &["get_random_bytes_user"]),
    },
    Code {
        situation: "fork",
        stalls: 5,
        what: What::Run("fork", "clone", &["copy_process"]),
    },
    Code {
        situation: "mmap-lock",
        stalls: 20,
        what: What::Run("compactor", "mlock", &["__mm_populate"]),
    },
    Code {
        situation: "sqpoll",
        stalls: 20,
        what: What::Run("iou-sqp", "", &["io_sq_thread"]),
    },
];

/// An object that a victim waits for.
struct Object {
    situation: &'static str,
    syscall: &'static str,
    /// Start of the object's name.
    prefix: &'static str,
    /// Part of the name of a function that waits.
    waits: &'static str,
    /// Part of the name of a function that ends the wait. `None` if an interrupt does.
    wakes: Option<&'static str>,
}

const OBJECTS: [Object; 4] = [
    Object {
        situation: "futex",
        syscall: "futex",
        prefix: "0x",
        waits: "victims::lock",
        wakes: Some("victims::lock"),
    },
    Object {
        situation: "pipe",
        syscall: "read",
        prefix: "pipe:[",
        waits: "victims::pipe",
        wakes: Some("victims::pipe"),
    },
    Object {
        situation: "slow-server",
        syscall: "recvfrom",
        prefix: "socket:[",
        waits: "victims::asks",
        wakes: Some("programs::answers"),
    },
    Object {
        situation: "atlas",
        syscall: PAGE_FAULT_ENTRY,
        // The tracer looks for the path when the victim has exited.
        prefix: "…/nvme0n1 (inode ",
        waits: "victims::turns_a_page",
        wakes: None,
    },
];

/// Minimum number of waits in each situation whose object is known. The name of a file is unknown
/// if it was closed before the tracer's buffer was emptied.
const KNOWN_OBJECTS: u64 = 3;

/// Name of a file that was closed before its name was known.
const CLOSED: &str = "inode ";

/// Numbers of stalls whose code is right, wrong and not known.
#[derive(Debug, Default)]
struct Found {
    right: u64,
    unknown: u64,
    wrong: Vec<String>,
}

impl Found {
    fn add(&mut self, is_known: bool, is_right: bool, code: impl FnOnce() -> String) {
        match (is_known, is_right) {
            (_, true) => self.right += 1,
            (false, false) => self.unknown += 1,
            (true, false) => self.wrong.push(code()),
        }
    }
}

/// Adds the waits of a situation's victim, except for those in which it slept on purpose.
fn waits(results: &Results, code: &Code, found: &mut Found) -> Result<(), Failed> {
    let What::Wait(syscall, function, releases) = code.what else {
        return Ok(());
    };
    // The only kernel lock in these situations belongs to the address space.
    let lock = (function == "rwsem_down_write_slowpath").then_some("mmap_lock:write");
    let facts = results.facts(code.situation)?;
    for (span, source) in &results.recorded.spans {
        let during = facts.begin <= span.start && span.end() <= facts.end;
        if !during || !is_of_thread(source, facts.pid) || source.kind != Kind::Wait {
            continue;
        }
        let Some(off) = OffCpu::parse(&source.detail) else {
            continue;
        };
        let is_blocked = match off.reason {
            OffCpuReason::Sleeping => off.syscall != Some("clock_nanosleep"),
            OffCpuReason::Disk | OffCpuReason::Lock => true,
            _ => false,
        };
        if span.dur < LEAST || !is_blocked {
            continue;
        }
        let is_place = off.syscall == Some(syscall) && off.function == Some(function);
        let is_release = match off.released_in {
            Some(release) => releases.contains(&release),
            None => off.released_at.is_none(),
        };
        let is_known = off.function.is_some() && off.lock.is_some() >= lock.is_some();
        let is_right = is_place && is_release && off.lock == lock;
        found.add(is_known, is_right, || source.detail.to_string());
    }
    Ok(())
}

/// Adds the samples of the thread that stalls, or that others wait for, in the expected call.
fn runs(results: &Results, code: &Code, found: &mut Found) -> Result<(), Failed> {
    let What::Run(thread, call, functions) = code.what else {
        return Ok(());
    };
    let facts = results.facts(code.situation)?;
    for (edge, source) in &results.recorded.edges {
        let Effect::Sampled(sampled) = &edge.effect else {
            continue;
        };
        let during = facts.begin <= edge.span.start && edge.span.start <= facts.end;
        if !during || !source.name.starts_with(thread) {
            continue;
        }
        let stack = Stack::from_folded(sampled);
        let names: Vec<&str> = stack.frames().iter().map(|frame| &*frame.name).collect();
        if !call.is_empty() && names.first() != Some(&call) {
            continue;
        }
        let is_right = names.iter().any(|name| functions.contains(name));
        found.add(!names.is_empty(), is_right, || sampled.to_string());
    }
    Ok(())
}

/// Names of the functions of the victims. They run this program under the name [`PROGRAM`], whose
/// symbols are too many to be read in the guest.
struct Names(Vec<NamedPlaces>);

impl Names {
    fn read(results: &Results) -> Result<Self, Failed> {
        let codes = results.recorded.edges.iter();
        let codes = codes.filter_map(|(edge, _)| match &edge.effect {
            Effect::Waited(code) => Some(WaitCode::from_text(code)),
            _ => None,
        });
        let places = codes.flat_map(|code| [code.stack, code.woken_from].concat());
        let offsets = places.filter(|place| place.file == PROGRAM);
        let offsets: Vec<u64> = offsets.filter_map(|place| place.offset).collect();
        let program = File::open(std::env::current_exe()?)?;
        let named = functions_at(program, &mut |_| Vec::new(), &offsets, &mut || {})?;
        Ok(Self(named.functions))
    }

    fn get(&self, file: &str, offset: u64) -> Option<&str> {
        let mut places = self.0.iter().filter(|_| file == PROGRAM);
        let place = places.find(|place| (place.first..=place.last).contains(&offset))?;
        Some(&place.function)
    }
}

/// Adds the waits of a situation's victim whose user code was recorded. Each must have a wait row
/// with the same start.
fn objects(
    results: &Results,
    names: &Names,
    object: &Object,
    found: &mut Found,
) -> Result<(), Failed> {
    let facts = results.facts(object.situation)?;
    for (edge, source) in &results.recorded.edges {
        let Effect::Waited(code) = &edge.effect else {
            continue;
        };
        let during = facts.begin <= edge.span.start && edge.span.end() <= facts.end;
        if !during || !is_of_thread(source, facts.pid) {
            continue;
        }
        let tid = source.thread.as_ref().map(|thread| thread.tid);
        let mut waits = results.recorded.spans.iter();
        let wait = waits.find(|(span, waiter)| {
            span.start == edge.span.start
                && waiter.kind == Kind::Wait
                && waiter.thread.as_ref().map(|thread| thread.tid) == tid
        });
        let Some((_, waiter)) = wait else {
            found.wrong.push(format!("no wait for {code}"));
            continue;
        };
        let call = OffCpu::parse(&waiter.detail).and_then(|off| off.syscall);
        if call != Some(object.syscall) {
            continue;
        }
        let code = WaitCode::from_text(code).named(|file, offset| names.get(file, offset));
        let name = code.object.as_deref().unwrap_or_default();
        let is_known = !name.is_empty() && !name.starts_with(CLOSED);
        let has = |stack: &[CodePlace], part: &str| {
            let mut functions = stack.iter().filter_map(|place| place.function.as_deref());
            functions.any(|function| function.contains(part))
        };
        // The code of a thread is unknown if the tracer was stopped while the thread existed.
        let (waits, wakes) = (&code.stack, &code.woken_from);
        let own = has(waits, object.waits);
        let waker = object.wakes.is_some_and(|function| has(wakes, function));
        let is_right = name.starts_with(object.prefix)
            && (own || waits.is_empty())
            && (waker || wakes.is_empty())
            && (own || waker);
        found.add(is_known, is_right, || format!("{code:?}"));
    }
    Ok(())
}

/// Checks that at least 95 % of the stalls have the right code, and that none has the wrong code.
pub(super) fn test(results: &Results) -> Result<(), Failed> {
    let mut all = Found::default();
    for code in ALL {
        let mut found = Found::default();
        waits(results, code, &mut found)?;
        runs(results, code, &mut found)?;
        let name = code.situation;
        check(found.wrong.is_empty(), || format!("{name}: {found:?}"))?;
        check(found.right >= code.stalls, || format!("{name}: {found:?}"))?;
        all.right += found.right;
        all.unknown += found.unknown;
    }
    let names = Names::read(results)?;
    for object in &OBJECTS {
        let mut found = Found::default();
        objects(results, &names, object, &mut found)?;
        let name = object.situation;
        check(found.wrong.is_empty(), || format!("{name}: {found:?}"))?;
        check(found.right >= KNOWN_OBJECTS, || {
            format!("{name}: {found:?}")
        })?;
    }
    let is_most = all.right >= 19 * all.unknown;
    check(is_most, || format!("{all:?}"))
}
