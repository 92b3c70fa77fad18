//! Pages about file systems and fsyncs.

use ticktax_model::Nanos;
use ticktax_model::storage::{
    BlockDevice, CounterCheck, FileWrite, ForeignData, FsyncArm, FsyncEffect, FsyncStudy,
    FsyncVerdict, FsyncWaits, FsyncWrites, Journal, Mount, Storage, StorageLimitation,
};

use super::block::{Columns, Written};
use super::mem::bytes_text;
use super::page::{Page, Tone, tied};
use super::{Paged, TextStyle};

/// File systems whose files are on another machine, or on the host of a virtual machine.
const REMOTE: [&str; 7] = ["9p", "ceph", "cifs", "nfs", "nfs4", "smb3", "virtiofs"];

impl Paged for Storage {
    fn page(&self, style: &TextStyle) -> Written {
        let mut page = Page::new(*style);
        page.line(Tone::Strong, "Mounted file systems, as they are in effect");
        if self.mounts.is_empty() {
            page.paragraph(Tone::Plain, "", "No mounted file system keeps files.");
        }
        for mount in &self.mounts {
            listed(&mut page, mount);
        }
        page.finish()
    }
}

/// Describes a mount in a few lines.
fn listed(page: &mut Page, mount: &Mount) {
    page.section(&format!("{} ({})", mount.path, mount.file_system));
    if let Some(expected) = &mount.fstab_type {
        let text = format!(
            "/etc/fstab says {expected}, but the file system is {}.",
            mount.file_system
        );
        page.paragraph(Tone::Warning, "", &text);
    }
    let mut facts = Vec::new();
    if mount.is_read_only {
        facts.push("read-only".to_owned());
    }
    facts.extend(
        mount
            .journal
            .map(|journal| journal_text(journal).to_owned()),
    );
    facts.extend(mount.barriers.map(|barriers| {
        if barriers {
            "flushes the disk's cache (barriers)".to_owned()
        } else {
            "never flushes the disk's cache (no barriers)".to_owned()
        }
    }));
    facts.extend(mount.delayed_allocation.map(|delayed| {
        if delayed {
            "allocates blocks late".to_owned()
        } else {
            "allocates blocks at once".to_owned()
        }
    }));
    if !facts.is_empty() {
        page.paragraph(Tone::Plain, "  ", &format!("{}.", facts.join("; ")));
    }
    if let Some(upper) = &mount.upper {
        page.paragraph(Tone::Plain, "  ", &format!("Writes go to {upper}."));
    }
    match &mount.device {
        Some(device) => device_lines(page, device, 2),
        None if mount.upper.is_none() => {
            let text = match mount.file_system.as_str() {
                "tmpfs" | "ramfs" => "In memory: an fsync makes nothing durable.".to_owned(),
                kind if REMOTE.contains(&kind) => {
                    format!("Source: {}. No disk of this machine.", mount.source)
                }
                _ => format!("Source: {}. Its disk is unknown.", mount.source),
            };
            page.paragraph(Tone::Plain, "  ", &text);
        }
        None => {}
    }
}

fn journal_text(journal: Journal) -> &'static str {
    match journal {
        Journal::None => "no journal",
        Journal::Ordered => "journal of metadata, after new data (ordered)",
        Journal::Writeback => "journal of metadata, independent of data (writeback)",
        Journal::Data => "journal of data and metadata",
        Journal::Metadata => "journal of metadata",
        Journal::CopyOnWrite => "copy-on-write, with a log of fsyncs",
    }
}

fn device_lines(page: &mut Page, device: &BlockDevice, indent: usize) {
    let cache = match device.write_cache.as_deref() {
        Some("write back") => "volatile write cache, so the kernel sends flushes",
        Some("write through") => "no volatile write cache, so the kernel sends no flushes",
        Some(_) | None => "write cache unknown",
    };
    let name = if device.disk == device.name {
        device.name.clone()
    } else {
        format!("{} on {}", device.name, device.disk)
    };
    let mut facts = vec![format!("{name}: {cache}")];
    if device.fua == Some(true) {
        facts.push("takes single writes past the cache (FUA)".to_owned());
    }
    if device.rotational == Some(true) {
        facts.push("rotating".to_owned());
    }
    if let Some(file) = &device.backing_file {
        facts.push(format!("backed by the file {file}"));
    }
    let text = format!("{}.", facts.join("; "));
    page.paragraph(Tone::Plain, &" ".repeat(indent), &text);
    for below in &device.below {
        device_lines(page, below, indent + 2);
    }
}

impl Paged for FsyncStudy {
    fn page(&self, style: &TextStyle) -> Written {
        let mut page = Page::new(*style);
        let mount = &self.mount;
        let mode = match mount.journal {
            Some(Journal::Ordered) => ", data=ordered",
            Some(Journal::Writeback) => ", data=writeback",
            Some(Journal::Data) => ", data=journal",
            Some(Journal::None) => ", no journal",
            Some(Journal::Metadata | Journal::CopyOnWrite) | None => "",
        };
        let allocation = match mount.delayed_allocation {
            Some(false) => ", nodelalloc",
            _ => "",
        };
        let title = format!(
            "Fsync in {} ({}{mode}{allocation})",
            mount.path, mount.file_system
        );
        page.line(Tone::Strong, &title);
        verdict(&mut page, self);
        lengths(&mut page, self);
        if let Some(effect) = self.effect {
            page.paragraph(effect_tone(effect), "", &effect_text(effect));
        }
        if let (Some(without), Some(with)) = (self.without.own, self.with.own) {
            writes(&mut page, self, without, with);
        }
        if let Some(check) = self.check {
            check_line(&mut page, check, mount);
        }
        for limitation in &self.limitations {
            page.hanging(Tone::Warning, &limitation_text(limitation));
        }
        page.finish()
    }
}

fn verdict(page: &mut Page, study: &FsyncStudy) {
    let (tone, text) = match study.verdict {
        None => (
            Tone::Warning,
            "UNKNOWN: it was not observed whose data an fsync writes.",
        ),
        Some(FsyncVerdict::File) => (
            Tone::Good,
            "FILE: an fsync writes only the file's own data.",
        ),
        Some(FsyncVerdict::Metadata) => (
            Tone::Good,
            match study.with.own {
                Some(own) if own.foreign_bytes > 0 => {
                    "METADATA: an fsync writes the file's data and the file system's metadata, \
                     but less than a tenth of the other file's dirty data."
                }
                _ => {
                    "METADATA: an fsync writes the file's data and the file system's metadata, \
                     but not the other file's dirty data."
                }
            },
        ),
        Some(FsyncVerdict::Partition) => (
            Tone::Alarm,
            "PARTITION: an fsync also writes the dirty data of other files in this file system.",
        ),
        Some(FsyncVerdict::World) => (
            Tone::Alarm,
            "WORLD: an fsync also writes the dirty data of other file systems.",
        ),
    };
    page.paragraph(tone, "", text);
}

fn columns<T: ToString>(without: T, with: T) -> Columns {
    Columns::right([(14, without), (16, with)])
}

fn lengths(page: &mut Page, study: &FsyncStudy) {
    let kind = match study.write {
        FileWrite::Append => "append",
        FileWrite::Overwrite => "overwrite",
    };
    let size = bytes_text(study.write_bytes);
    page.section(&tied(format!("Time of an fsync after a {size} {kind}")));
    let next_to = match study.foreign {
        ForeignData::New => "new",
        ForeignData::Overwritten => "overwritten",
    };
    let foreign = bytes_text(study.foreign_bytes);
    page.headings(
        Tone::Faint,
        "",
        &columns("alone".to_owned(), format!("+{foreign} dirty")),
    );
    let (without, with) = (study.without, study.with);
    let mut row = |name: &str, of: &dyn Fn(FsyncArm) -> String| {
        page.row(Tone::Plain, 2, name, &columns(of(without), of(with)));
    };
    row("fsyncs", &|arm| arm.count.to_string());
    row("median", &|arm| arm.median.to_string());
    let is_exact = without.count.min(with.count) >= 100;
    if is_exact {
        row("p99", &|arm| arm.p99.to_string());
    }
    row("maximum", &|arm| arm.max.to_string());
    let text = format!("The other file's dirty data is {next_to}.");
    page.legend(&text);
}

fn effect_tone(effect: FsyncEffect) -> Tone {
    if effect.low.0 > 0 {
        Tone::Warning
    } else {
        Tone::Plain
    }
}

fn effect_text(effect: FsyncEffect) -> String {
    let FsyncEffect {
        pairs,
        mean,
        low,
        high,
    } = effect;
    let interval =
        |low: Nanos, high: Nanos| format!("95 % interval {low} to {high}, {pairs} pairs");
    if low.0 > 0 {
        let interval = interval(low, high);
        format!("The other file's dirty data makes an fsync {mean} longer ({interval}).")
    } else if high.0 < 0 {
        let (mean, interval) = (Nanos(-mean.0), interval(Nanos(-high.0), Nanos(-low.0)));
        format!("Next to the other file's dirty data, an fsync is {mean} shorter ({interval}).")
    } else {
        let interval = interval(low, high);
        format!("No effect of the other file's dirty data on the time was found ({interval}).")
    }
}

fn writes(page: &mut Page, study: &FsyncStudy, without: FsyncWrites, with: FsyncWrites) {
    page.section("Writes of an fsync, on average");
    let (alone, next_to) = (study.without.count, study.with.count);
    let mut row = |name: &str, of: &dyn Fn(&FsyncWrites) -> u64, shows_zero: bool| {
        let (first, second) = (of(&without), of(&with));
        if shows_zero || first + second > 0 {
            let cells = columns(mean_bytes(first, alone), mean_bytes(second, next_to));
            page.row(Tone::Plain, 2, name, &cells);
        }
    };
    row("the file's data", &|sum| sum.file_bytes, true);
    row("metadata and journal", &|sum| sum.metadata_bytes, true);
    row("the other file's data", &|sum| sum.foreign_bytes, true);
    row("further files", &|sum| sum.other_file_bytes, false);
    row("other file systems", &|sum| sum.elsewhere_bytes, false);
    row("unknown", &|sum| sum.unknown_bytes, false);
    let mut count = |name: &str, of: &dyn Fn(&FsyncWrites) -> u64| {
        let mean =
            |sum: &FsyncWrites, count: u64| format!("{:.1}", of(sum) as f64 / count.max(1) as f64);
        let cells = columns(mean(&without, alone), mean(&with, next_to));
        page.row(Tone::Plain, 2, name, &cells);
    };
    count("flushes of the disk's cache", &|sum| sum.flushes);
    count("writes past the cache (FUA)", &|sum| sum.fua_writes);
    if let (Some(first), Some(second)) = (study.without.meanwhile, study.with.meanwhile) {
        let cells = columns(
            mean_bytes(first.bytes(), alone),
            mean_bytes(second.bytes(), next_to),
        );
        page.row(Tone::Faint, 2, "concurrent writes by others", &cells);
    }
    if let (Some(first), Some(second)) = (study.without.waits, study.with.waits) {
        waits(page, study, first, second);
    }
    page.legend(
        "A write belongs to the fsync if the calling thread or a thread of the file system \
         submitted it during the fsync. Others are the kernel's flusher and other programs.",
    );
}

fn waits(page: &mut Page, study: &FsyncStudy, without: FsyncWaits, with: FsyncWaits) {
    page.section("Writes in flight during an fsync, on average (kinds can overlap)");
    let mean = |sum: Nanos, count: u64| Nanos(sum.0 / count.max(1).cast_signed()).to_string();
    let mut row = |name: &str, of: &dyn Fn(&FsyncWaits) -> Nanos| {
        let cells = columns(
            mean(of(&without), study.without.count),
            mean(of(&with), study.with.count),
        );
        page.row(Tone::Plain, 2, name, &cells);
    };
    row("the file's data", &|sum| sum.file);
    row("metadata, journal and flushes", &|sum| sum.metadata);
    row("other files' data", &|sum| sum.others);
    row("no write", &|sum| sum.nothing);
    page.legend("Writes of several kinds can be in flight at the same time.");
}

fn mean_bytes(sum: u64, count: u64) -> String {
    bytes_text((sum + count / 2) / count.max(1))
}

fn check_line(page: &mut Page, check: CounterCheck, mount: &Mount) {
    let disk = mount.device.as_ref().map(|device| device.disk.as_str());
    let text = format!(
        "Check: the traced writes add up to {}; {} counted {} (difference {}).",
        bytes_text(check.observed_bytes),
        disk.unwrap_or("the disk"),
        bytes_text(check.counted_bytes),
        tied(format!("{:.2} %", check.difference() * 100.0)),
    );
    let tone = if check.difference() > 0.01 {
        Tone::Warning
    } else {
        Tone::Faint
    };
    page.paragraph(tone, "", &text);
}

fn limitation_text(limitation: &StorageLimitation) -> String {
    match limitation {
        StorageLimitation::NotTraced { why } => format!("The writes have no owners: {why}."),
        StorageLimitation::Lost { writes, bytes } => format!(
            "{writes} writes ({}) did not fit into the tracer's buffer, so the owners are \
             incomplete. Choose a smaller --foreign.",
            bytes_text(*bytes)
        ),
        StorageLimitation::NoCounters => {
            "The disk's counter of written bytes is off (queue/iostats) or unreadable, so the \
             writes are not checked."
                .to_owned()
        }
        StorageLimitation::WrittenEarly { dirty_percent } => format!(
            "When the fsync began, only {dirty_percent} % of the other file's data was still \
             dirty: the kernel had already written the rest. Choose a smaller --foreign: the \
             kernel starts to write if more than vm.dirty_background_bytes is dirty, or more than \
             vm.dirty_background_ratio if that is 0."
        ),
        StorageLimitation::Interrupted => {
            "The measurement was interrupted, so there are fewer pairs.".to_owned()
        }
    }
}
