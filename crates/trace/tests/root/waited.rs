//! A followed thread waits for a lock, a pipe and a file lock. The records of its user code must
//! show the object, the functions that it waited in, and those that ended the wait.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use libtest_mimic::Failed;
use ticktax_host::Proc;
use ticktax_model::recording::{CodePlace, Effect, Row, WaitCode};
use ticktax_model::victim::{FollowedThread, RunState};
use ticktax_model::{CpuList, Nanos, SourceTable};
use ticktax_trace::{TraceSettings, Tracer};

use crate::load;

/// Length of each wait.
const WAIT: Duration = Duration::from_millis(20);

const NAME: &str = "waits-for-things";

#[inline(never)]
fn opens_the_door(door: &Mutex<u32>) -> u32 {
    let mut opened = door.lock().unwrap_or_else(PoisonError::into_inner);
    *opened += 1;
    *opened
}

#[inline(never)]
fn drinks_from_the_pipe(pipe: &mut impl Read) -> u8 {
    let mut byte = [0];
    pipe.read_exact(&mut byte).unwrap_or_default();
    byte[0]
}

#[inline(never)]
fn writes_the_diary(diary: &File) -> bool {
    diary.lock().is_ok() && diary.unlock().is_ok()
}

#[inline(never)]
fn leaves_the_house(held: MutexGuard<'_, u32>) -> u32 {
    drop(held);
    // If unlocking were the last step, the compiler would turn the call into a jump.
    std::hint::black_box(1)
}

#[inline(never)]
fn fills_the_pipe(source: &mut impl Write) -> bool {
    source.write_all(&[1]).is_ok()
}

#[inline(never)]
fn closes_the_diary(other: &File) -> bool {
    other.unlock().is_ok()
}

/// Ends each wait, so that the functions above have a caller.
#[inline(never)]
fn helps_all_day(held: MutexGuard<'_, u32>, source: &mut impl Write, other: &File) -> u32 {
    std::thread::sleep(WAIT);
    let left = leaves_the_house(held);
    std::thread::sleep(WAIT);
    let filled = fills_the_pipe(source);
    std::thread::sleep(WAIT);
    let closed = closes_the_diary(other);
    std::thread::sleep(WAIT);
    left + u32::from(filled) + u32::from(closed)
}

/// Calls the functions above, so that they have a caller.
#[inline(never)]
fn spends_the_day(door: &Mutex<u32>, pipe: &mut impl Read, diary: &File) -> u32 {
    let waits = opens_the_door(door) + u32::from(drinks_from_the_pipe(pipe));
    waits + u32::from(writes_the_diary(diary))
}

/// Returns the waits whose user code was recorded: the thread, the length and the code.
fn codes_of(tracer: Tracer, online: &CpuList) -> Vec<(Option<i32>, Nanos, WaitCode)> {
    let mut codes = Vec::new();
    let mut sink = |sources: &SourceTable, row: &Row| {
        if let Row::Edge(edge) = row
            && let Effect::Waited(code) = &edge.effect
        {
            let thread = sources.get(edge.span.source).thread.as_ref();
            let tid = thread.map(|thread| thread.tid);
            codes.push((tid, edge.span.dur, WaitCode::from_text(code)));
        }
    };
    let mut closing = tracer.close(online, Nanos(2), &mut SourceTable::default(), &mut sink);
    let code = std::mem::take(&mut closing.code_files).named(|| ());
    let function = |file: &str, offset| {
        let mut files = code.files.iter();
        files.find(|known| known.name == file)?.function(offset)
    };
    let codes = codes.into_iter();
    codes
        .map(|(tid, length, code)| (tid, length, code.named(function)))
        .collect()
}

pub(crate) fn waits_have_their_user_code_and_object() -> Result<(), Failed> {
    let mut tracer = load(&TraceSettings {
        following: true,
        ..TraceSettings::default()
    })?;
    let online = Proc::default().online().unwrap_or_default();
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("diary");
    let (diary, other) = (File::create(&path)?, File::open(&path)?);
    let door = Arc::new(Mutex::new(0));
    let (mut pipe, mut source) = std::io::pipe()?;
    let pipe_object = std::fs::read_link(format!("/proc/self/fd/{}", pipe.as_raw_fd()))?;
    let (send_tid, tid) = mpsc::channel();
    let (go, started) = mpsc::channel::<()>();
    let for_thread = Arc::clone(&door);
    let thread = std::thread::Builder::new()
        .name(NAME.to_owned())
        .spawn(move || {
            send_tid.send(nix::unistd::gettid()).unwrap_or_default();
            started.recv().unwrap_or_default();
            let waits = spends_the_day(&for_thread, &mut pipe, &diary);
            // The file stays open until its path has been read. A pipe needs no path.
            (waits, diary)
        })?;
    let tid = tid.recv()?.as_raw();
    let followed = [FollowedThread {
        pid: std::process::id().cast_signed(),
        tid,
        name: NAME.to_owned(),
        state: RunState::Sleeping,
    }];
    if tracer.follow(&followed) != 1 {
        return Err("the thread is not followed".into());
    }
    tracer.start(&online, &online);
    other.lock()?;
    let held = door.lock().unwrap_or_else(PoisonError::into_inner);
    go.send(())?;
    let helped = helps_all_day(held, &mut source, &other);
    let codes = codes_of(tracer, &online);
    let (waits, ..) = thread.join().map_err(|_| "the thread failed")?;
    if waits != 3 || helped != 3 {
        return Err(format!("the thread did {waits} of 3 things").into());
    }
    let door = format!("{:#x}", Arc::as_ptr(&door) as usize);
    let expected = [
        (door, "opens_the_door", "leaves_the_house"),
        (
            pipe_object.display().to_string(),
            "drinks_from_the_pipe",
            "fills_the_pipe",
        ),
        (
            path.display().to_string(),
            "writes_the_diary",
            "closes_the_diary",
        ),
    ];
    for (object, name, waker) in expected {
        let is_it = |code: &WaitCode| {
            code.object.as_deref() == Some(&object)
                && has_call(&code.stack, name, "spends_the_day")
                && has_call(&code.woken_from, waker, "helps_all_day")
        };
        let is_long = |length: Nanos| length >= Nanos::from_millis(15);
        let mut found = codes.iter();
        if !found.any(|(by, length, code)| *by == Some(tid) && is_long(*length) && is_it(code)) {
            return Err(format!("no wait for {object} in {name}: {codes:#?}").into());
        }
    }
    Ok(())
}

/// Returns whether `caller` has called `function` on a stack.
fn has_call(stack: &[CodePlace], function: &str, caller: &str) -> bool {
    let functions = stack.iter().filter_map(|place| place.function.as_deref());
    let functions: Vec<&str> = functions.collect();
    let mut calls = functions.windows(2);
    calls.any(|call| call[0].contains(function) && call[1].contains(caller))
}
