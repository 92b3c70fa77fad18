//! Reads the fields of an event in ftrace text. Some events have two notations: the kernel's, and
//! that of trace-cmd and perf, such as `sh:1642 [120] S ==> swapper/2:0 [120]`.

use ticktax_model::Kind;

use crate::convert::Converter;
use crate::event::{Action, Left, Task};
use crate::words::{self, Known, known_name};

/// Returns the action of an event, or `None` if its fields cannot be read.
pub(super) fn action(known: Known, fields: &str, converter: &mut Converter) -> Option<Action> {
    Some(match known {
        Known::Switch => switch(fields, converter)?,
        Known::Waking => Action::Waking(woken(fields, converter)?),
        Known::Wakeup => Action::Wakeup(woken(fields, converter)?),
        Known::WakeupNew => Action::WakeupNew(woken(fields, converter)?),
        Known::Ran => Action::Ran(value(fields, " runtime=")?.parse().ok()?),
        Known::Fork => {
            let name = between(fields, "child_comm=", " child_pid=").unwrap_or_default();
            Action::Created(task(name, value(fields, "child_pid=")?, converter)?)
        }
        Known::NewTask => {
            let name = between(fields, "comm=", " clone_flags=").unwrap_or_default();
            Action::Created(task(name, value(fields, "pid=")?, converter)?)
        }
        Known::IrqEntry => {
            let name = words::interrupt(rest(fields, "name=")?);
            Action::Enter(Kind::Irq, converter.names.intern(name))
        }
        Known::IpiEntry => {
            let name = fields.trim_matches(['(', ')']);
            Action::Enter(Kind::Irq, converter.names.intern(name))
        }
        Known::VectorEntry(name) => Action::Enter(Kind::Irq, converter.names.intern(name)),
        Known::Exit(kind) => Action::Leave(kind),
        Known::SoftirqEntry => {
            let name = words::softirq(value(fields, "vec=")?.parse().ok()?);
            Action::Enter(Kind::Softirq, converter.names.intern(name))
        }
        Known::Raise => {
            let name = words::softirq(value(fields, "vec=")?.parse().ok()?);
            Action::Raised(converter.names.intern(name))
        }
        Known::TimerEntry => Action::TimerStart(function(fields, converter)?),
        Known::TimerExit => Action::TimerEnd,
        Known::WorkStart => Action::WorkStart(function(fields, converter)?),
        Known::WorkEnd => Action::WorkEnd,
        Known::WorkQueued => Action::Queued(function(fields, converter)?),
    })
}

fn switch(fields: &str, converter: &mut Converter) -> Option<Action> {
    let (prev, left, next) = if fields.starts_with("prev_comm=") {
        let prev = between(fields, "prev_comm=", " prev_pid=")?;
        let next = between(fields, "next_comm=", " next_pid=")?;
        (
            task(prev, value(fields, "prev_pid=")?, converter)?,
            value(fields, "prev_state=")?,
            task(next, value(fields, "next_pid=")?, converter)?,
        )
    } else {
        let (prev, next) = fields.split_once(" ==> ")?;
        let state = prev.rsplit_once("] ")?.1.trim();
        (
            short_task(prev, converter)?,
            state,
            short_task(next, converter)?,
        )
    };
    let left = Left::from_text(left, next.tid);
    Some(Action::Switch { prev, left, next })
}

fn woken(fields: &str, converter: &mut Converter) -> Option<Task> {
    if fields.starts_with("comm=") {
        let name = between(fields, "comm=", " pid=")?;
        return task(name, value(fields, " pid=")?, converter);
    }
    short_task(fields, converter)
}

/// Reads `sh:1642 [120]`.
fn short_task(text: &str, converter: &mut Converter) -> Option<Task> {
    let (thread, _) = text.trim().split_once(" [")?;
    let (name, tid) = thread.rsplit_once(':')?;
    task(name, tid, converter)
}

fn task(name: &str, tid: &str, converter: &mut Converter) -> Option<Task> {
    Some(Task {
        tid: tid.parse().ok()?,
        name: known_name(name).map(|name| converter.names.intern(name)),
    })
}

/// Reads the name of a function, without its offset.
fn function(fields: &str, converter: &mut Converter) -> Option<crate::names::NameId> {
    let function = value(fields, "function=").or_else(|| value(fields, "function "))?;
    let name = function.split('+').next().unwrap_or(function);
    Some(converter.names.intern(name))
}

/// Returns the text between two markers.
fn between<'t>(text: &'t str, start: &str, end: &str) -> Option<&'t str> {
    let after = rest(text, start)?;
    after.find(end).map(|length| &after[..length])
}

/// Returns the word after a marker.
fn value<'t>(text: &'t str, marker: &str) -> Option<&'t str> {
    let after = rest(text, marker)?;
    after.split_ascii_whitespace().next()
}

fn rest<'t>(text: &'t str, marker: &str) -> Option<&'t str> {
    text.find(marker).map(|at| &text[at + marker.len()..])
}
