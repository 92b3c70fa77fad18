//! The section about packet delays. It shows the steps on each packet's path, the cause of the
//! delay in each step, and the longest delays.

use ticktax_model::packet_path::{
    NotFollowed, PacketCpu, PacketDelay, PacketPathGroup, PacketPaths, PacketRan, PacketStep,
    PacketThread, ReceivedIn, Step, StepTime,
};
use ticktax_model::statement::Statement;
use ticktax_model::{Intervals, Kind, Nanos};

use super::cells::{Cells, by_name};
use super::numbers::{
    WAKE_UP, counted, displayed, grouped, quantiles, rate, rough_or_blank, time_or_blank,
};
use super::page::{Page, Tone, tied};
use super::wall;

/// Maximum number of paths and of threads shown.
const SHOWN: usize = 8;
/// Maximum number of CPU holders to list per step or delay. CPU holders are the threads or
/// interrupts that ran in the meantime.
const HOLDERS: usize = 4;

/// Writes the section. Writes nothing unless packets woke threads or the kernel counted packets
/// that it could not process.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    let Some(packets) = &statement.packets else {
        return;
    };
    let whose = match &statement.victim {
        Some(victim) => format!(" of {}", victim.name),
        None => String::new(),
    };
    page.section(&format!("Packet latency{whose}"));
    let wall = wall(statement);
    if packets.wakeups > 0 {
        let headings = Cells {
            time: String::new(),
            share: String::new(),
            ..Cells::headings()
        };
        page.headings(Tone::Faint, "", &headings.columns());
        steps(page, packets, wall);
        ways(page, packets, wall);
        threads(page, packets, wall);
        longest(page, packets);
    }
    not_followed(page, packets);
    cpus(page, &packets.cpus);
    page.legend(
        "A path consists of kernel events: an interrupt raises NET_RX, NET_RX starts, it wakes a \
         thread, the thread runs. Steps that were not traced are missing. A path without an \
         interrupt (loopback, veth) starts at the system call or softirq that raised NET_RX. The \
         interrupt starts polling the device, so packets that arrived after it waited less. \
         behind: what used the CPU in a step of 50 us or more that was the longest of its path.",
    );
}

fn cells(intervals: &Intervals, wall: Nanos) -> Cells {
    Cells {
        rate: rate(intervals.count, wall),
        median: rough_or_blank(intervals.median),
        p99: rough_or_blank(intervals.p99),
        max: time_or_blank(intervals.max),
        ..Cells::default()
    }
}

fn row(page: &mut Page, tone: Tone, indent: usize, name: &str, intervals: &Intervals, wall: Nanos) {
    page.row(tone, indent, name, &cells(intervals, wall).columns());
}

/// Writes each step on the packets' path. For slow steps, also writes what held the CPU.
fn steps(page: &mut Page, packets: &PacketPaths, wall: Nanos) {
    let whole = "From first event to running";
    row(page, Tone::Strong, 0, whole, &packets.delay, wall);
    for step in &packets.steps {
        row(page, Tone::Plain, 2, step.step.name(), &step.length, wall);
        if step.slow_count > 0 {
            page.paragraph(Tone::Faint, "    ", &held(step));
        }
    }
}

fn held(step: &PacketStep) -> String {
    let times = if step.slow_count == 1 {
        "the longest step once".to_owned()
    } else {
        format!("the longest step {} times", grouped(step.slow_count))
    };
    match behind(&step.ran) {
        Some(behind) => format!("{times}: {behind}"),
        None => times,
    }
}

/// Lists what held the CPU, and for how long, or returns `None` if that is unknown.
pub(super) fn behind(by: &[PacketRan]) -> Option<String> {
    let parts = by.iter().take(HOLDERS);
    let parts = parts.map(|holder| tied(format!("{} {}", culprit_name(holder), holder.time)));
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| format!("behind {}", parts.join(", ")))
}

/// Returns the display name of a CPU holder: the thread or interrupt that ran in the meantime.
pub(super) fn culprit_name(holder: &PacketRan) -> String {
    match (holder.kind, holder.pid) {
        (Kind::Idle, _) => WAKE_UP.to_owned(),
        (_, Some(pid)) => format!("{} ({pid})", holder.name),
        (_, None) => displayed(&holder.name).to_owned(),
    }
}

fn ways(page: &mut Page, packets: &PacketPaths, wall: Nanos) {
    page.line(Tone::Strong, "By source of NET_RX");
    let (shown, others) = packets
        .groups
        .split_at(by_name(packets.groups.len(), SHOWN));
    for way in shown {
        let tone = match way.received_in {
            ReceivedIn::Ksoftirqd => Tone::Warning,
            ReceivedIn::Softirq | ReceivedIn::Unknown => Tone::Plain,
        };
        row(page, tone, 2, &raised(way), &way.delay, wall);
    }
    left_out(
        page,
        others.len() as u64 + packets.groups_left_out,
        "source",
    );
    handed_over(page, packets);
}

/// Describes what raised the `NET_RX` softirq, and the context in which `NET_RX` then ran.
fn raised(way: &PacketPathGroup) -> String {
    let by = match (&way.raised_by, way.kind) {
        (Some(name), Some(Kind::Irq)) => format!("interrupt {name}"),
        (Some(name), Some(Kind::Softirq)) => format!("softirq {name}"),
        (Some(name), _) => name.clone(),
        (None, _) => "unknown source".to_owned(),
    };
    format!("{by}{}", ran_in(way.received_in))
}

/// Describes the context in which `NET_RX` ran, with an empty string for the usual one, a softirq.
fn ran_in(received_in: ReceivedIn) -> &'static str {
    match received_in {
        ReceivedIn::Softirq => "",
        ReceivedIn::Ksoftirqd => ", ran in ksoftirqd",
        ReceivedIn::Unknown => ", ran in an unknown place",
    }
}

/// Writes how many wake-ups went through `ksoftirqd`, and the longest delay among these and among
/// all others.
fn handed_over(page: &mut Page, packets: &PacketPaths) {
    let delays = |place: ReceivedIn| {
        let ways = packets
            .groups
            .iter()
            .filter(move |way| way.received_in == place);
        ways.map(|way| &way.delay)
    };
    let handed: u64 = delays(ReceivedIn::Ksoftirqd).map(|delay| delay.count).sum();
    if handed == 0 {
        return;
    }
    let max = |place| {
        delays(place)
            .filter_map(|delay| delay.max)
            .max()
            .unwrap_or_default()
    };
    let mut text = format!(
        "{} of {} wake-ups went through it, max {}",
        grouped(handed),
        grouped(packets.followed),
        tied(max(ReceivedIn::Ksoftirqd)),
    );
    if delays(ReceivedIn::Softirq).next().is_some() {
        text = format!("{text}; the others max {}", tied(max(ReceivedIn::Softirq)));
    }
    page.paragraph(Tone::Warning, "  ksoftirqd: ", &text);
}

fn left_out(page: &mut Page, count: u64, what: &str) {
    if count > 0 {
        let text = counted(count, &format!("other {what}"));
        page.paragraph(Tone::Faint, "  ", &text);
    }
}

fn threads(page: &mut Page, packets: &PacketPaths, wall: Nanos) {
    if packets.threads.is_empty() {
        return;
    }
    page.line(Tone::Strong, "By woken thread");
    let (shown, others) = packets
        .threads
        .split_at(by_name(packets.threads.len(), SHOWN));
    for thread in shown {
        row(
            page,
            Tone::Plain,
            2,
            &thread_name(thread),
            &thread.delay,
            wall,
        );
        let steps = thread.steps.iter().filter_map(|step| {
            let lengths = step.length.lengths()?;
            let rough = quantiles(lengths.median, lengths.p99);
            Some(format!(
                "{} {rough}, {}",
                step.step.name(),
                tied(format!("max {}", lengths.max))
            ))
        });
        let steps: Vec<String> = steps.collect();
        page.paragraph(Tone::Faint, "    ", &steps.join("; "));
    }
    left_out(
        page,
        others.len() as u64 + packets.threads_left_out,
        "thread",
    );
}

fn thread_name(thread: &PacketThread) -> String {
    if thread.name == thread.program {
        return format!("{} ({})", thread.name, thread.tid);
    }
    format!("{} ({}) of {}", thread.name, thread.tid, thread.program)
}

fn longest(page: &mut Page, packets: &PacketPaths) {
    if packets.longest.is_empty() {
        return;
    }
    page.line(Tone::Strong, "Longest delays");
    for delay in &packets.longest {
        let label = format!("  {:>8}  ", delay.length.to_string());
        page.place(delay.moment());
        page.paragraph(Tone::Plain, &label, &delay_text(delay));
    }
}

/// Describes a delay step by step.
fn delay_text(delay: &PacketDelay) -> String {
    let head = format!(
        "{} {}, {}",
        delay.thread,
        tied(format!("({}) on CPU {}", delay.tid, delay.ran_on)),
        tied(format!("at {:.6} s", delay.at.as_secs_f64())),
    );
    let by = match &delay.raised_by {
        Some(by) => format!("raised by {}", tied(by)),
        None => "unknown source".to_owned(),
    };
    let on = tied(format!("on CPU {}", delay.cpu));
    let mut parts = vec![format!("{by}{} {on}", ran_in(delay.received_in))];
    parts.extend(delay.steps.iter().map(|step: &StepTime| {
        let text = tied(format!("{} {}", step.step.name(), step.time));
        let is_longest = step.step == delay.longest;
        match behind(&delay.ran).filter(|_| is_longest && step.step != Step::Receiving) {
            Some(behind) => format!("{text} {behind}"),
            None => text,
        }
    }));
    format!("{head}: {}", parts.join("; "))
}

fn not_followed(page: &mut Page, packets: &PacketPaths) {
    let NotFollowed {
        not_run,
        no_softirq,
        no_room,
    } = packets.not_followed;
    let reasons = [
        (not_run, "whose thread did not run afterwards"),
        (no_softirq, "in a NET_RX softirq that was not recorded"),
        (no_room, "of threads beyond the limit"),
    ];
    let reasons = reasons.iter().filter(|(count, _)| *count > 0);
    let reasons = reasons.map(|(count, why)| format!("{} {why}", grouped(*count)));
    let reasons: Vec<String> = reasons.collect();
    if !reasons.is_empty() {
        let text = format!(
            "{} of {}: {}",
            grouped(not_run + no_softirq + no_room),
            counted(packets.wakeups, "wake-up"),
            reasons.join(", "),
        );
        page.paragraph(Tone::Faint, "Not followed: ", &text);
    }
}

/// Writes how many packets the kernel delayed and dropped, according to its own counters.
fn cpus(page: &mut Page, cpus: &[PacketCpu]) {
    for cpu in cpus.iter().filter(|cpu| cpu.dropped + cpu.squeezed > 0) {
        let mut parts = Vec::new();
        if cpu.squeezed > 0 {
            let times = counted(cpu.squeezed, "time");
            parts.push(format!("NET_RX used up its budget or time {times}"));
        }
        if cpu.dropped > 0 {
            parts.push(format!(
                "{} dropped because its backlog was full",
                grouped(cpu.dropped)
            ));
        }
        let text = format!(
            "{} (of {} frames on the whole machine)",
            parts.join(", "),
            grouped(cpu.processed)
        );
        let label = format!("CPU {}: ", cpu.cpu);
        page.paragraph(Tone::Warning, &label, &text);
    }
}
