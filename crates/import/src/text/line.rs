//! Splits a line of ftrace text into its parts.

/// Nanoseconds per second.
const SECOND: i64 = 1_000_000_000;

/// A line with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'t> {
    /// Name of the running thread.
    pub(super) name: &'t str,
    pub(super) tid: i32,
    /// Process of the thread, if the line contains it.
    pub(super) process: Option<i32>,
    pub(super) cpu: u32,
    pub(super) time: Time,
    /// Name of the event.
    pub(super) event: &'t str,
    /// The rest of the line.
    pub(super) fields: &'t str,
}

/// The time of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// The time in nanoseconds, and the unit that it is rounded to.
    Nanos(i64, i64),
    /// A number without a decimal point, which counts cycles or events.
    Count,
}

impl<'t> Line<'t> {
    /// Splits a line. Returns `None` if it contains no event.
    pub(super) fn parse(text: &'t str) -> Option<Self> {
        let mut from = 0;
        // A thread's name can contain brackets too.
        loop {
            let open = from + text[from..].find('[')?;
            from = open + 1;
            let close = text[from..].find(']')?;
            let Ok(cpu) = text[from..from + close].parse() else {
                continue;
            };
            if !text[..open].ends_with([' ', '\t']) {
                continue;
            }
            let after = &text[from + close + 1..];
            if let Some(line) = Self::around(&text[..open], cpu, after) {
                return Some(line);
            }
        }
    }

    fn around(before: &'t str, cpu: u32, after: &'t str) -> Option<Self> {
        let (time, rest) = time(after.trim_start())?;
        let rest = rest.trim_start();
        let (event, fields) = match rest.split_once(": ") {
            Some(parts) => parts,
            None => (rest.strip_suffix(':')?, ""),
        };
        // perf script adds the name of the event's group.
        let event = event.rsplit(':').next().unwrap_or(event).trim();
        if event.is_empty() || event.contains(' ') {
            return None;
        }
        let (before, process) = split_process(before.trim_end());
        let (name, tid, pid) = thread(before)?;
        Some(Self {
            name,
            tid,
            process: process.or(pid),
            cpu,
            time,
            event,
            fields: fields.trim(),
        })
    }
}

/// Splits off the process id in parentheses, such as `( 1642)`. It is `(-----)` if the kernel did
/// not know it.
fn split_process(text: &str) -> (&str, Option<i32>) {
    let split = text
        .strip_suffix(')')
        .and_then(|inner| inner.rsplit_once('('));
    match split {
        Some((before, inside)) if inside.trim().bytes().all(|byte| byte == b'-') => {
            (before.trim_end(), None)
        }
        Some((before, inside)) => match inside.trim().parse() {
            Ok(process) => (before.trim_end(), Some(process)),
            Err(_) => (text, None),
        },
        None => (text, None),
    }
}

/// Splits `sh-1642` (ftrace), `sh  1642` (perf script) or `sh  1640/1642` (perf script with process
/// ids) into the name, the thread id and, if present, the process id.
fn thread(text: &str) -> Option<(&str, i32, Option<i32>)> {
    if let Some((name, tid)) = text.rsplit_once('-')
        && let Ok(tid) = tid.parse()
    {
        return Some((name.trim(), tid, None));
    }
    let (name, ids) = text.rsplit_once([' ', '\t'])?;
    match ids.split_once('/') {
        Some((pid, tid)) => Some((name.trim(), tid.parse().ok()?, Some(pid.parse().ok()?))),
        None => Some((name.trim(), ids.parse().ok()?, None)),
    }
}

/// Splits the time off the text after the CPU number, which can start with flags such as `d..2.`.
fn time(text: &str) -> Option<(Time, &str)> {
    let (first, rest) = text.split_once(": ").or_else(|| {
        let end = text.find(':')?;
        Some((&text[..end], &text[end + 1..]))
    })?;
    let mut words = first.split_ascii_whitespace();
    let last = words.next_back()?;
    // At most the flags precede the time.
    if words.count() > 1 {
        return None;
    }
    Some((parse_time(last)?, rest))
}

fn parse_time(text: &str) -> Option<Time> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((seconds, fraction)) = text.split_once('.') else {
        return is_number(text).then_some(Time::Count);
    };
    if !is_number(seconds) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let unit = 10_i64.pow(9 - u32::try_from(fraction.len()).ok()?);
    let seconds = seconds.parse::<i64>().ok()?.checked_mul(SECOND)?;
    let nanos = seconds.checked_add(fraction.parse::<i64>().ok()? * unit)?;
    Some(Time::Nanos(nanos, unit))
}

/// Returns the CPU of a line such as `CPU:2 [LOST 25 EVENTS]`.
pub(super) fn lost_cpu(text: &str) -> Option<u32> {
    let rest = text.trim_start().strip_prefix("CPU:")?;
    rest.split([' ', '[']).next()?.parse().ok()
}

/// Returns how many events a line such as `CPU:2 [LOST 25 EVENTS]` or `CPU:2 [25 EVENTS DROPPED]`
/// reports as lost. A line without a number counts as one event.
pub(super) fn lost(text: &str) -> Option<u64> {
    if !text.contains("EVENTS") || !(text.contains("LOST") || text.contains("DROPPED")) {
        return None;
    }
    let inside = text.split_once('[')?.1;
    let numbers = inside
        .split([' ', ']'])
        .filter_map(|word| word.parse().ok());
    Some(numbers.max().unwrap_or(1))
}
