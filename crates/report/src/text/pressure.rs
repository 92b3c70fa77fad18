//! Page about writeback pressure.

use ticktax_model::Nanos;
use ticktax_model::pressure::{
    ByteLevel, DirtyMemory, PressedDevice, PressedProgram, PressureCause, PressureLimit,
    PressureLimitation, PressureVerdict, PressureWaits, SoftMount, WritePressure,
};

use super::block::{Columns, Written};
use super::mem::bytes_text;
use super::numbers::grouped;
use super::page::{Page, Tone, tied};
use super::{Paged, TextStyle};

/// Maximum number of programs in a table.
const MOST: usize = 10;
/// Smallest limit on dirty data that is suggested. A smaller one would make every writer wait.
const SMALLEST_LIMIT: u64 = 1 << 20;

impl Paged for WritePressure {
    fn page(&self, style: &TextStyle) -> Written {
        let mut page = Page::new(*style);
        let title = format!("Writeback pressure, {}", tied(self.length));
        page.line(Tone::Strong, &title);
        verdict(&mut page, self);
        devices(&mut page, &self.devices, &self.memory);
        memory(&mut page, &self.memory);
        if let Some(programs) = &self.programs {
            throttled(&mut page, programs);
            reclaim(&mut page, programs, self.memory.swapped_in_bytes);
        }
        for mount in &self.soft_mounts {
            page.paragraph(Tone::Warning, "", &soft_text(mount));
        }
        advice(&mut page, self);
        for limitation in &self.limitations {
            page.hanging(Tone::Warning, &limitation_text(limitation));
        }
        page.finish()
    }
}

fn process(name: &str, pid: i32) -> String {
    format!("{name} ({pid})")
}

/// Returns a device's name with the directories of its mounts.
fn device_name(bdi: &str, devices: &[PressedDevice]) -> String {
    let device = devices.iter().find(|device| device.bdi == bdi);
    let mut name = bdi.to_owned();
    if let Some(disk) = device.and_then(|device| device.disk.as_ref()) {
        name = format!("{name} {disk}");
    }
    match device.map(|device| &device.mounts[..]) {
        Some([mount]) => format!("{name} ({mount})"),
        Some([mount, others @ ..]) => format!("{name} ({mount}, {} more)", others.len()),
        Some([]) | None => name,
    }
}

fn verdict(page: &mut Page, found: &WritePressure) {
    let (tone, text) = match found.verdict {
        None => (
            Tone::Warning,
            "UNKNOWN: the waits of programs were not traced.".to_owned(),
        ),
        Some(PressureVerdict::Quiet) => (
            Tone::Good,
            "QUIET: the kernel made no writer wait.".to_owned(),
        ),
        Some(PressureVerdict::Own) => (
            Tone::Good,
            "OWN: writers had to wait, but only for data that they wrote themselves.".to_owned(),
        ),
        Some(PressureVerdict::Others) => {
            let first = found.causes.first();
            let text = first.map(|cause| cause_text(cause, &found.devices));
            (Tone::Alarm, format!("OTHERS: {}", text.unwrap_or_default()))
        }
    };
    page.paragraph(tone, "", &text);
    for cause in found.causes.iter().skip(1).take(MOST) {
        let text = cause_text(cause, &found.devices);
        page.paragraph(Tone::Plain, "", &text);
    }
}

fn cause_text(cause: &PressureCause, devices: &[PressedDevice]) -> String {
    let payer = process(&cause.payer, cause.payer_pid);
    let time = tied(cause.time);
    let target = device_name(&cause.payer_bdi, devices);
    let limit = match cause.limit {
        PressureLimit::Machine => "the machine's limit on dirty data",
        PressureLimit::Smaller => "a limit on dirty data below the machine's",
        PressureLimit::Device => "the device's own limit on dirty data (strict_limit)",
    };
    let mut sentences = vec![format!(
        "{payer} was throttled for {time} at {limit} while it wrote to {target}."
    )];
    let is_other = cause.bdi.as_ref() != Some(&cause.payer_bdi);
    if is_other {
        let holder = cause.bdi.as_ref().map_or_else(
            || "other devices".to_owned(),
            |bdi| device_name(bdi, devices),
        );
        sentences.push(format!("Most dirty data was for {holder}."));
    }
    let writer = cause.writer.as_ref().zip(cause.writer_pid);
    sentences.push(writer.map_or_else(
        || "The program that wrote it is unknown.".to_owned(),
        |(name, pid)| {
            let writer = process(name, pid);
            format!("{writer} dirtied the most of the programs throttled on that device.")
        },
    ));
    sentences.join(" ")
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn mean(level: Option<ByteLevel>) -> String {
    level.map_or_else(unknown, |level| bytes_text(level.mean_bytes))
}

fn max(level: Option<ByteLevel>) -> String {
    level.map_or_else(unknown, |level| bytes_text(level.max_bytes))
}

fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(unknown, bytes_text)
}

fn level_columns(cells: [String; 5]) -> Columns {
    Columns::right([8, 9, 9, 8, 10].into_iter().zip(cells))
}

fn devices(page: &mut Page, devices: &[PressedDevice], memory: &DirtyMemory) {
    page.section("Dirty data");
    let headings = ["mean", "max", "in flight", "written", "speed"];
    let headings = level_columns(headings.map(str::to_owned));
    page.headings(Tone::Faint, "", &headings);
    for device in devices {
        let speed = device
            .bandwidth_bytes_hz
            .map_or_else(unknown, |bytes| format!("{}/s", bytes_text(bytes)));
        let cells = level_columns([
            mean(device.dirty),
            max(device.dirty),
            max(device.writeback),
            bytes(device.written_bytes),
            speed,
        ]);
        let name = device_name(&device.bdi, devices);
        page.row(Tone::Plain, 2, &name, &cells);
    }
    let cells = level_columns([
        mean(memory.dirty),
        max(memory.dirty),
        max(memory.writeback),
        bytes(memory.written_bytes),
        String::new(),
    ]);
    page.row(Tone::Strong, 2, "machine", &cells);
    page.legend(
        "In flight: the largest amount that was being written. Speed: the kernel's estimate, \
         which starts at 100 MiB/s and adapts slowly.",
    );
}

fn memory(page: &mut Page, memory: &DirtyMemory) {
    let (Some(limit), Some(background)) = (memory.limit_bytes, memory.background_bytes) else {
        return;
    };
    let threshold = bytes_text(u64::midpoint(limit, background));
    let exceeded = memory.throttling_percent.map_or_else(String::new, |share| {
        let share = tied(format!("{share} %"));
        format!(" This was so in {share} of the samples.")
    });
    let text = format!(
        "The kernel throttles writers while dirty data and data in flight exceed {threshold}, \
         halfway between the background limit ({}) and the limit ({}, from vm.dirty_ratio or \
         vm.dirty_bytes).{exceeded}",
        bytes_text(background),
        bytes_text(limit),
    );
    page.paragraph(Tone::Plain, "", &text);
}

fn wait_columns(cells: &[String; 5]) -> Columns {
    let mut columns = Columns::default();
    for (i, (width, text)) in [9, 7, 9, 10].into_iter().zip(cells).enumerate() {
        columns = columns.and_right(usize::from(i > 0), width, text);
    }
    columns.and_left(2, 10, &cells[4])
}

fn waits(waits: PressureWaits) -> [String; 3] {
    [
        waits.time.to_string(),
        grouped(waits.count),
        waits.max.to_string(),
    ]
}

fn throttled(page: &mut Page, programs: &[PressedProgram]) {
    page.section("Programs that wrote");
    let headings = ["throttled", "count", "max", "dirtied", "device"];
    page.headings(Tone::Faint, "", &wait_columns(&headings.map(str::to_owned)));
    let wrote: Vec<&PressedProgram> = programs
        .iter()
        .filter(|program| {
            program.throttled.count > 0 || program.dirtied_bytes.is_some_and(|bytes| bytes > 0)
        })
        .collect();
    if wrote.is_empty() {
        page.paragraph(Tone::Plain, "  ", "None.");
    }
    for program in wrote.iter().take(MOST) {
        let [time, count, longest] = waits(program.throttled);
        let names: Vec<&str> = program.devices.iter().map(|device| &*device.bdi).collect();
        let cells = [
            time,
            count,
            longest,
            bytes(program.dirtied_bytes),
            names.join(", "),
        ];
        let name = process(&program.name, program.pid);
        page.row(Tone::Plain, 2, &name, &wait_columns(&cells));
    }
    more(page, wrote.len());
    page.legend(
        "A writer is throttled in balance_dirty_pages. Times end when the thread runs again, and \
         are summed over all threads. Dirtied data includes direct I/O and exited children.",
    );
}

fn more(page: &mut Page, all: usize) {
    if all > MOST {
        let text = format!("  {} more (--format json)", all - MOST);
        page.line(Tone::Faint, &text);
    }
}

fn reclaim(page: &mut Page, programs: &[PressedProgram], swapped_in: Option<u64>) {
    let had_to: Vec<&PressedProgram> = programs
        .iter()
        .filter(|program| program.reclaim.count > 0)
        .collect();
    if !had_to.is_empty() {
        page.section("Programs that had to free memory (direct reclaim)");
        let headings = ["reclaim", "count", "max", "faults", ""];
        page.headings(Tone::Faint, "", &wait_columns(&headings.map(str::to_owned)));
        for program in had_to.iter().take(MOST) {
            let [time, count, longest] = waits(program.reclaim);
            let faults = program.major_faults.map(|faults| faults.to_string());
            let faults = faults.unwrap_or_else(unknown);
            let cells = [time, count, longest, faults, String::new()];
            let name = process(&program.name, program.pid);
            page.row(Tone::Plain, 2, &name, &wait_columns(&cells));
        }
        more(page, had_to.len());
        page.legend("Faults are page faults that read a file or swap.");
    }
    if let Some(bytes) = swapped_in.filter(|&bytes| bytes > 0) {
        let text = format!("{} were read back from swap.", bytes_text(bytes));
        page.paragraph(Tone::Plain, "", &text);
    }
}

fn soft_text(mount: &SoftMount) -> String {
    let SoftMount {
        path,
        file_system,
        option,
        ..
    } = mount;
    let after = match (mount.timeout, mount.repetitions) {
        (Some(timeout), Some(repetitions)) => format!(
            "after {repetitions} repetitions of a request, the first one after {}",
            tied(timeout)
        ),
        _ => "after some time".to_owned(),
    };
    format!(
        "{path} ({file_system}) is mounted {option}: if the server is too slow, a write there \
         fails with an error {after}."
    )
}

/// Suggests limits on the writer of the first cause.
fn advice(page: &mut Page, found: &WritePressure) {
    let Some(cause) = found.causes.first() else {
        return;
    };
    page.section("What to do");
    let mut number = 0;
    let mut next = || {
        number += 1;
        format!("  {number}. ")
    };
    let device = found
        .devices
        .iter()
        .find(|device| cause.bdi.as_ref() == Some(&device.bdi));
    let is_other = cause.bdi.as_ref() != Some(&cause.payer_bdi);
    if let Some(device) = device.filter(|_| is_other)
        && let Some(ratio) = device.max_ratio_percent
    {
        let text = format!(
            "Lower the share of the limit that {} may use (max_ratio, {} now).",
            device.bdi,
            tied(format!("{ratio} %"))
        );
        page.paragraph(Tone::Plain, &next(), &text);
        let command = format!("echo 1 | sudo tee /sys/class/bdi/{}/max_ratio", device.bdi);
        page.command("     $ ", &command);
    }
    if let (PressureLimit::Machine, Some(limit)) = (cause.limit, found.memory.limit_bytes) {
        let text = "Test whether a lower or a higher limit (in bytes) shortens the waits.";
        page.paragraph(Tone::Plain, &next(), text);
        let command = format!(
            "sudo ticktax try vm.dirty_limit=now,{},{} --metric disk-time --pid {}",
            (limit / 4).max(SMALLEST_LIMIT),
            limit.saturating_mul(4),
            cause.payer_pid
        );
        page.command("     $ ", &command);
    }
    let writer = found
        .programs
        .iter()
        .flatten()
        .find(|program| Some(program.pid) == cause.writer_pid);
    let group = writer.and_then(|writer| writer.cgroup.as_deref());
    if let (Some(group), Some(bdi)) = (group.filter(|&group| group != "/"), &cause.bdi) {
        let name = cause.writer.as_deref().unwrap_or_default();
        let text = format!(
            "Limit how fast the cgroup of {name} may write, and set memory.max, so that its dirty \
             data has its own limit."
        );
        page.paragraph(Tone::Plain, &next(), &text);
        let speed = device.and_then(|device| speed(device, found.length));
        let limit = (speed.unwrap_or(1 << 21) / 2).max(1 << 16);
        let command = format!("echo {bdi} wbps={limit} | sudo tee /sys/fs/cgroup{group}/io.max");
        page.command("     $ ", &command);
    }
}

/// Returns the speed of a device with throttled writers, in bytes per second. The kernel's estimate
/// starts at 100 MiB per second and can take minutes to fall, so it is used only if it is lower
/// than the measured speed.
fn speed(device: &PressedDevice, length: Nanos) -> Option<u64> {
    let milliseconds = u64::try_from(length.0 / 1_000_000).ok()?;
    let written = device.written_bytes.filter(|&bytes| bytes > 0);
    let measured = written.and_then(|bytes| bytes.saturating_mul(1_000).checked_div(milliseconds));
    let speeds = device.bandwidth_bytes_hz.into_iter().chain(measured);
    speeds.min()
}

fn limitation_text(limitation: &PressureLimitation) -> String {
    match limitation {
        PressureLimitation::NotTraced { why } => {
            format!("Waits of programs are unknown: {why}.")
        }
        PressureLimitation::Lost { waits } => {
            format!(
                "{waits} waits did not fit into the tracer's buffer, so the times are too small."
            )
        }
        PressureLimitation::DevicesAtPauses => {
            "debugfs is not mounted, so the dirty data of devices is known only from moments at \
             which a writer was throttled."
                .to_owned()
        }
        PressureLimitation::NoDevices => {
            "Dirty data of devices is unknown, because debugfs is not mounted or not readable."
                .to_owned()
        }
        PressureLimitation::NoCounters => {
            "The machine's dirty data is unknown: /proc/vmstat lacks its counters.".to_owned()
        }
        PressureLimitation::Interrupted => {
            "The run was interrupted, so it is shorter than requested.".to_owned()
        }
    }
}
