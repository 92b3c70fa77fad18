//! Decodes the kernel's binary events with the descriptions of their fields, which files of perf
//! and trace-cmd contain. Field offsets differ between kernels.

mod tracing_data;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use ticktax_model::Kind;

use crate::bytes::{Bytes, number};
use crate::convert::Converter;
use crate::event::{Action, Left, Task};
use crate::names::{NameId, Names};
use crate::words::{self, Known, known_name};

pub(crate) use tracing_data::{TracingData, read_formats, read_systems};

/// The place of a field in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    offset: usize,
    size: usize,
    contents: Contents,
}

/// How to interpret a field's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    /// The value itself.
    Plain,
    /// The offset of the value from the start of the event, and its length.
    Offset,
    /// The offset of the value from the end of this field, and its length.
    RelativeOffset,
}

impl Field {
    /// Parses a line such as `field:char prev_comm[16]; offset:8; size:16; signed:0;`. Returns the
    /// field's name too.
    fn parse(line: &str) -> Option<(&str, Self)> {
        let rest = line.trim().strip_prefix("field:")?;
        let mut parts = rest.split(';').map(str::trim);
        let declaration = parts.next()?;
        let mut number = |key: &str| {
            let part = parts.find_map(|part| part.strip_prefix(key))?;
            part.parse::<usize>().ok()
        };
        let offset = number("offset:")?;
        let size = number("size:")?;
        let contents = if declaration.starts_with("__data_loc") {
            Contents::Offset
        } else if declaration.starts_with("__rel_loc") {
            Contents::RelativeOffset
        } else {
            Contents::Plain
        };
        let name = declaration.rsplit([' ', '*']).next()?;
        let name = name.split('[').next()?;
        let field = Self {
            offset,
            size,
            contents,
        };
        Some((name, field))
    }

    /// Returns the field's bytes.
    fn bytes<'e>(&self, event: &'e [u8], is_big_endian: bool) -> Option<&'e [u8]> {
        let end = self.offset.checked_add(self.size)?;
        let own = event.get(self.offset..end)?;
        if self.contents == Contents::Plain {
            return Some(own);
        }
        let place = number(own.get(..4)?, is_big_endian)?;
        let (from, length) = (usize::try_from(place & 0xffff).ok()?, place >> 16);
        let from = if self.contents == Contents::RelativeOffset {
            end.checked_add(from)?
        } else {
            from
        };
        event.get(from..from.checked_add(usize::try_from(length).ok()?)?)
    }

    fn number(&self, event: &[u8], is_big_endian: bool) -> Option<u64> {
        number(self.bytes(event, is_big_endian)?, is_big_endian)
    }

    /// Returns the number of a thread or process, which has 32 bits.
    fn id(&self, event: &[u8], is_big_endian: bool) -> Option<i32> {
        let number = self.number(event, is_big_endian)?;
        #[expect(clippy::cast_possible_truncation, reason = "the field has 32 bits")]
        Some((number as u32).cast_signed())
    }
}

/// Fields of an event that the importer understands.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Switch {
        prev: TaskFields,
        state: Field,
        next: TaskFields,
    },
    /// An event about one thread.
    Task(TaskFields),
    /// An event whose field is a name.
    Name(Field),
    /// An event whose field is a number or an address.
    Number(Field),
    /// An event whose fields are not needed.
    Bare,
}

#[derive(Clone, Copy, Debug)]
struct TaskFields {
    name: Field,
    tid: Field,
}

/// An event's layout.
#[derive(Clone, Copy, Debug)]
struct Layout {
    known: Known,
    shape: Shape,
}

impl Layout {
    fn new(known: Known, fields: &HashMap<&str, Field>) -> Option<Self> {
        let field = |name: &str| fields.get(name).copied();
        let task = |name: &str, tid: &str| {
            Some(TaskFields {
                name: field(name)?,
                tid: field(tid)?,
            })
        };
        let shape = match known {
            Known::Switch => Shape::Switch {
                prev: task("prev_comm", "prev_pid")?,
                state: field("prev_state")?,
                next: task("next_comm", "next_pid")?,
            },
            Known::Waking | Known::Wakeup | Known::WakeupNew | Known::NewTask => {
                Shape::Task(task("comm", "pid")?)
            }
            Known::Fork => Shape::Task(task("child_comm", "child_pid")?),
            Known::IrqEntry => Shape::Name(field("name")?),
            Known::Ran => Shape::Number(field("runtime")?),
            Known::SoftirqEntry | Known::Raise => Shape::Number(field("vec")?),
            Known::TimerEntry | Known::WorkStart | Known::WorkQueued => {
                Shape::Number(field("function")?)
            }
            Known::IpiEntry
            | Known::VectorEntry(_)
            | Known::Exit(_)
            | Known::TimerExit
            | Known::WorkEnd => Shape::Bare,
        };
        Some(Self { known, shape })
    }
}

/// The layouts of all events in a file.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    /// Layouts by the event's id, for events that the importer understands.
    by_id: HashMap<u16, Layout, RandomState>,
    /// Field with the id of the running thread, which all events have in the same place.
    context: Option<Field>,
    pub(crate) is_big_endian: bool,
    functions: Functions,
}

impl Layouts {
    pub(crate) fn new(is_big_endian: bool) -> Self {
        Self {
            is_big_endian,
            ..Self::default()
        }
    }

    /// Adds an event's description, as in `/sys/kernel/tracing/events/*/*/format`.
    pub(crate) fn add(&mut self, format: &[u8]) {
        let format = String::from_utf8_lossy(format);
        let mut name = None;
        let mut id = None;
        let mut fields = HashMap::new();
        for line in format.lines() {
            if let Some(value) = line.strip_prefix("name:") {
                name = Some(value.trim());
            } else if let Some(value) = line.strip_prefix("ID:") {
                id = value.trim().parse::<u16>().ok();
            } else if let Some((name, field)) = Field::parse(line) {
                fields.insert(name, field);
            }
        }
        if let Some(&context) = fields.get("common_pid") {
            self.context = Some(context);
        }
        let known = name.and_then(Known::from_name);
        let layout = known.and_then(|known| Layout::new(known, &fields));
        if let (Some(id), Some(layout)) = (id, layout) {
            self.by_id.insert(id, layout);
        }
    }

    /// Returns whether the file describes context switches.
    pub(crate) fn has_switches(&self) -> bool {
        let mut layouts = self.by_id.values();
        layouts.any(|layout| layout.known == Known::Switch)
    }

    /// Adds the names of the kernel's functions, in the format of `/proc/kallsyms`.
    pub(crate) fn add_symbols(&mut self, kallsyms: &[u8]) {
        self.functions.add(kallsyms);
    }

    /// Returns the id of the thread that was running at an event.
    pub(crate) fn context(&self, event: &[u8]) -> Option<i32> {
        self.context?.id(event, self.is_big_endian)
    }

    /// Decodes an event. Its id is its first two bytes. Returns `None` if it is too short for its
    /// fields.
    pub(crate) fn action(&mut self, event: &[u8], converter: &mut Converter) -> Option<Action> {
        let is_big_endian = self.is_big_endian;
        let id = Bytes::new(event, is_big_endian).u16()?;
        let Some(&Layout { known, shape }) = self.by_id.get(&id) else {
            return Some(Action::Seen);
        };
        let names = &mut converter.names;
        let mut task = |fields: TaskFields| {
            Some(Task {
                tid: fields.tid.id(event, is_big_endian)?,
                name: task_name(fields.name.bytes(event, is_big_endian)?, names),
            })
        };
        Some(match (known, shape) {
            (_, Shape::Switch { prev, state, next }) => {
                let prev = task(prev)?;
                let next = task(next)?;
                let state = state.number(event, is_big_endian)?;
                let left = Left::from_number(state, next.tid);
                Action::Switch { prev, left, next }
            }
            (Known::Waking, Shape::Task(fields)) => Action::Waking(task(fields)?),
            (Known::Wakeup, Shape::Task(fields)) => Action::Wakeup(task(fields)?),
            (Known::WakeupNew, Shape::Task(fields)) => Action::WakeupNew(task(fields)?),
            (_, Shape::Task(fields)) => Action::Created(task(fields)?),
            (_, Shape::Name(field)) => {
                let bytes = field.bytes(event, is_big_endian)?;
                let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
                let name = String::from_utf8_lossy(&bytes[..end]);
                Action::Enter(Kind::Irq, names.intern(words::interrupt(&name)))
            }
            (known, Shape::Number(field)) => {
                let value = field.number(event, is_big_endian)?;
                self.numbered(known, value, names)
            }
            (Known::VectorEntry(name), Shape::Bare) => Action::Enter(Kind::Irq, names.intern(name)),
            (Known::IpiEntry, Shape::Bare) => Action::Enter(Kind::Irq, names.intern("ipi")),
            (Known::Exit(kind), Shape::Bare) => Action::Leave(kind),
            (Known::TimerExit, Shape::Bare) => Action::TimerEnd,
            (_, Shape::Bare) => Action::WorkEnd,
        })
    }

    fn numbered(&mut self, known: Known, value: u64, names: &mut Names) -> Action {
        match known {
            Known::SoftirqEntry => {
                Action::Enter(Kind::Softirq, names.intern(words::softirq(value)))
            }
            Known::Ran => Action::Ran(value.cast_signed()),
            Known::Raise => Action::Raised(names.intern(words::softirq(value))),
            Known::TimerEntry => Action::TimerStart(self.functions.name(value, names)),
            Known::WorkQueued => Action::Queued(self.functions.name(value, names)),
            _ => Action::WorkStart(self.functions.name(value, names)),
        }
    }
}

fn task_name(bytes: &[u8], names: &mut Names) -> Option<NameId> {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    let name = &bytes[..end];
    // Names are almost always valid, and are looked up for each event.
    match str::from_utf8(name) {
        Ok(name) => known_name(name).map(|name| names.intern(name)),
        Err(_) => Some(names.intern_bytes(name)),
    }
}

/// Names of the kernel's functions by address.
#[derive(Debug, Default)]
struct Functions {
    /// Addresses and names, sorted.
    symbols: Vec<(u64, String)>,
    known: HashMap<u64, NameId, RandomState>,
}

impl Functions {
    fn add(&mut self, kallsyms: &[u8]) {
        for line in kallsyms.split(|&byte| byte == b'\n') {
            let Ok(line) = str::from_utf8(line) else {
                continue;
            };
            let mut words = line.split_ascii_whitespace();
            let address = words
                .next()
                .and_then(|word| u64::from_str_radix(word, 16).ok());
            let is_code = words
                .next()
                .is_some_and(|kind| matches!(kind, "t" | "T" | "w" | "W"));
            if let (Some(address), true, Some(name)) = (address, is_code, words.next())
                && address != 0
            {
                self.symbols.push((address, name.to_owned()));
            }
        }
        self.symbols.sort_unstable();
    }

    /// Returns the name of the function at `address`, or the address itself.
    fn name(&mut self, address: u64, names: &mut Names) -> NameId {
        if let Some(&name) = self.known.get(&address) {
            return name;
        }
        let at = self.symbols.partition_point(|(start, _)| *start < address);
        let name = match self.symbols.get(at) {
            Some((start, name)) if *start == address => names.intern(name),
            _ => names.intern(&format!("{address:#x}")),
        };
        self.known.insert(address, name);
        name
    }
}
