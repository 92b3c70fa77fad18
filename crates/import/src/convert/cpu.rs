//! The stack of a CPU: what it is executing.

use ticktax_model::{Cpu, Kind, SourceId};

use crate::names::NameId;

/// Maximum depth of the stack. A kernel nests at most a few interrupts, and functions in them.
const MAX_DEPTH: usize = 32;

/// An entry of the stack. `end` is set when the entry ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) start: i64,
    pub(super) end: i64,
    /// Total length of the entries directly above this one that have ended.
    pub(super) nested: i64,
    pub(super) source: SourceId,
    pub(super) kind: Kind,
    pub(super) name: NameId,
    is_function: bool,
    /// Whether the entry is an interrupt or a function in one, rather than a thread.
    pub(super) is_nested: bool,
}

impl Frame {
    pub(super) fn new(
        start: i64,
        kind: Kind,
        name: NameId,
        source: SourceId,
        is_function: bool,
    ) -> Self {
        Self {
            start,
            end: start,
            nested: 0,
            source,
            kind,
            name,
            is_function,
            is_nested: true,
        }
    }

    /// Returns whether this is an interrupt of this kind, not a function within one.
    pub(super) fn is_interrupt(&self, kind: Kind) -> bool {
        self.kind == kind && !self.is_function
    }
}

/// State of a CPU since its first event.
#[derive(Debug)]
pub(super) struct CpuState {
    pub(super) cpu: Cpu,
    /// Time of the first event, at which the accounts start.
    pub(super) begin: i64,
    /// Time of the latest event.
    pub(super) seen: i64,
    /// Id of the thread that is running.
    pub(super) running: i32,
    /// Number of lost events.
    pub(super) lost: u64,
    /// Whether events were lost since the latest event.
    pub(super) lost_since_seen: bool,
    /// Start, source and nested time of the thread's current row.
    start: i64,
    source: SourceId,
    nested: i64,
    frames: Vec<Frame>,
    /// A switch from idle time that the trace lacks, until its time is known.
    pub(super) pending: Option<Pending>,
}

/// A switch from idle time to a thread that the trace lacks. Rows that end later must be written
/// after the rows before the switch, so they are held back.
#[derive(Debug)]
pub(super) struct Pending {
    /// Earliest and latest possible time of the switch.
    pub(super) from: i64,
    pub(super) until: i64,
    pub(super) tid: i32,
    /// Whether the trace lacks the wake-up too.
    pub(super) lacks_wakeup: bool,
    pub(super) held: Vec<Frame>,
}

impl Pending {
    /// Maximum number of rows that are held back.
    pub(super) const MAX_HELD: usize = 4_096;
}

impl CpuState {
    pub(super) fn new(cpu: Cpu, at: i64, running: i32, source: SourceId) -> Self {
        Self {
            cpu,
            begin: at,
            seen: at,
            running,
            lost: 0,
            lost_since_seen: false,
            start: at,
            source,
            nested: 0,
            frames: Vec::new(),
            pending: None,
        }
    }

    /// Returns an entry for the thread that is not on the stack.
    pub(super) fn part(start: i64, end: i64, source: SourceId) -> Frame {
        Frame {
            start,
            end,
            nested: 0,
            source,
            kind: Kind::Task,
            name: NameId::NONE,
            is_function: false,
            is_nested: false,
        }
    }

    /// Returns the source of the code that the CPU is executing.
    pub(super) fn top(&self) -> SourceId {
        self.frames.last().map_or(self.source, |frame| frame.source)
    }

    pub(super) fn top_frame(&self) -> Option<&Frame> {
        self.frames.last()
    }

    /// Returns whether the CPU is executing an interrupt of this kind.
    pub(super) fn is_in(&self, kind: Kind) -> bool {
        self.frames.iter().any(|frame| frame.is_interrupt(kind))
    }

    /// Returns whether the CPU is executing a function within an interrupt.
    pub(super) fn is_in_function(&self) -> bool {
        self.frames.last().is_some_and(|frame| frame.is_function)
    }

    /// Pushes an entry. Returns whether there was room.
    pub(super) fn enter(&mut self, frame: Frame) -> bool {
        let has_room = self.frames.len() < MAX_DEPTH;
        if has_room {
            self.frames.push(frame);
        }
        has_room
    }

    /// Ends the topmost interrupt or function, if there is one.
    pub(super) fn leave(&mut self, at: i64) -> Option<Frame> {
        let mut frame = self.frames.pop()?;
        frame.end = at;
        let length = at - frame.start;
        match self.frames.last_mut() {
            Some(below) => below.nested += length,
            None => self.nested += length,
        }
        Some(frame)
    }

    /// Moves the start of the running thread's row.
    pub(super) fn restart(&mut self, at: i64) {
        self.start = at;
    }

    /// Ends the running thread's row and starts the next one.
    pub(super) fn replace(&mut self, at: i64, running: i32, source: SourceId) -> Frame {
        let ended = Frame {
            start: self.start,
            end: at,
            nested: self.nested,
            source: self.source,
            kind: Kind::Task,
            name: NameId::NONE,
            is_function: false,
            is_nested: false,
        };
        self.start = at;
        self.nested = 0;
        self.running = running;
        self.source = source;
        ended
    }
}
