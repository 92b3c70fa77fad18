//! The section about virtual machines: the CPU time that each of them cost, and its exits.

use ticktax_model::Nanos;
use ticktax_model::guests::{GuestExits, GuestMachine, GuestStatement};
use ticktax_model::statement::Statement;

use super::block::Columns;
use super::numbers::{counted, displayed, grouped, percent};
use super::page::{Page, Tone, tied};

mod ticks;

/// Maximum number of machines with their own line. The costliest come first.
const MACHINES: usize = 20;
/// Maximum number of machines whose exits are listed.
const WITH_EXITS: usize = 5;
/// Maximum number of exit reasons per machine.
const REASONS: usize = 6;

const LEGEND: &str = "time: CPU time of all threads of the machine, without interrupts. guest: \
    running the guest's own code. KVM: handling exits in the kernel. VMM: the vCPUs' threads in \
    the process, for example to emulate a device. other: the process's other threads, kernel \
    threads that work for this machine only, and time of unknown activity. waited: time that \
    vCPUs waited for a CPU, which the guest sees as stolen. EXITS: KVM and VMM are CPU time; each \
    is both, divided by the number of exits; elapsed also includes sleep and interrupts.";

/// Writes the section. Writes nothing if no virtual machine was seen.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    let Some(guests) = &statement.guests else {
        return;
    };
    page.section("Virtual machines");
    let headings = ["time", "guest", "KVM", "VMM", "other", "exits/s", "waited"];
    page.headings(Tone::Faint, "MACHINE", &cells(headings.map(str::to_owned)));
    for machine in guests.machines.iter().take(MACHINES) {
        page.row(Tone::Plain, 2, &named(machine), &machine_cells(machine));
    }
    let others = guests.machines.get(MACHINES..).unwrap_or_default();
    if !others.is_empty() {
        let time: Nanos = others.iter().map(|machine| machine.time).sum();
        let others = counted(others.len() as u64, "other machine");
        let text = format!("{others}: {} (--format json)", tied(time));
        page.paragraph(Tone::Faint, "  ", &text);
    }
    for machine in guests.machines.iter().take(WITH_EXITS) {
        exits(page, machine, guests);
    }
    page.legend(LEGEND);
    ticks::write(page, guests);
}

/// Returns a line for the first screen of the host.
pub(super) fn summary(guests: &GuestStatement) -> Option<String> {
    let first = guests.machines.first()?;
    let all = guests.machines.len() as u64;
    let time: Nanos = guests.machines.iter().map(|machine| machine.time).sum();
    let guest: Nanos = guests.machines.iter().map(|machine| machine.guest).sum();
    let exits: f64 = guests
        .machines
        .iter()
        .map(|machine| machine.exits_per_s)
        .sum();
    let costliest = match all {
        1 => String::new(),
        _ => format!(" Costliest: {} ({}).", named(first), tied(first.time)),
    };
    Some(format!(
        "{}: {} of CPU time, {} in the guests; {}.{costliest}",
        counted(all, "virtual machine"),
        tied(time),
        percent(guest.share_of(time)),
        tied(format!("{} exits/s", whole(exits))),
    ))
}

fn named(machine: &GuestMachine) -> String {
    format!("{} ({})", displayed(&machine.name), machine.pid)
}

/// Formats a rate without digits after the decimal point.
fn whole(rate: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is not negative, and a cast saturates"
    )]
    grouped(rate.round() as u64)
}

fn machine_cells(machine: &GuestMachine) -> Columns {
    let other =
        machine.other_threads + machine.kernel_threads + machine.unknown + machine.unclassified;
    let share = |time: Nanos| percent(time.share_of(machine.time));
    let waits = machine.waits.map(|waits| waits.time.to_string());
    cells([
        machine.time.to_string(),
        share(machine.guest),
        share(machine.kvm),
        share(machine.vmm),
        share(other),
        whole(machine.exits_per_s),
        waits.unwrap_or_else(|| "?".to_owned()),
    ])
}

fn cells(cells: [String; 7]) -> Columns {
    let [time, guest, kvm, vmm, other, exits, waited] = cells;
    Columns::right([
        (8, time),
        (7, guest),
        (7, kvm),
        (7, vmm),
        (7, other),
        (8, exits),
        (8, waited),
    ])
}

/// Lists the exits of a machine, and describes its halts.
fn exits(page: &mut Page, machine: &GuestMachine, guests: &GuestStatement) {
    let headings = ["count", "exits/s", "KVM", "VMM", "each", "elapsed"];
    let title = format!("EXITS of {}", named(machine));
    page.headings(
        Tone::Faint,
        &title,
        &exit_cells(headings.map(str::to_owned)),
    );
    for exits in machine.reasons.iter().take(REASONS) {
        page.row(
            Tone::Plain,
            2,
            &exits.reason,
            &cells_of(exits, guests.elapsed),
        );
    }
    if let Some(others) = machine
        .reasons
        .get(REASONS..)
        .filter(|others| !others.is_empty())
    {
        let mut sum = GuestExits::default();
        for exits in others {
            sum.sum.count += exits.sum.count;
            sum.sum.kvm += exits.sum.kvm;
            sum.sum.vmm += exits.sum.vmm;
            sum.sum.elapsed += exits.sum.elapsed;
        }
        let title = counted(others.len() as u64, "other reason");
        page.row(Tone::Faint, 2, &title, &cells_of(&sum, guests.elapsed));
    }
    page.paragraph(Tone::Faint, "  ", &details(machine));
}

fn cells_of(exits: &GuestExits, elapsed: Nanos) -> Columns {
    let sum = &exits.sum;
    let rate = sum.count as f64 / elapsed.as_secs_f64().max(1e-9);
    let each = (sum.kvm + sum.vmm).0.checked_div(sum.count.cast_signed());
    exit_cells([
        grouped(sum.count),
        whole(rate),
        sum.kvm.to_string(),
        sum.vmm.to_string(),
        each.map_or_else(String::new, |each| Nanos(each).to_string()),
        sum.elapsed.to_string(),
    ])
}

fn exit_cells(cells: [String; 6]) -> Columns {
    Columns::right([9, 9, 9, 9, 9, 9].into_iter().zip(cells))
}

/// Describes the vCPUs, halts and injected interrupts of a machine.
fn details(machine: &GuestMachine) -> String {
    let mut parts = vec![tied(counted(machine.vcpus.len() as u64, "vCPU"))];
    if let Some(halts) = &machine.halts {
        let count = halts.polled + halts.slept;
        let polled = match halts.polled {
            0 => String::new(),
            polled => format!(
                " ({} ended while KVM polled, {})",
                tied(grouped(polled)),
                tied(halts.polled_time)
            ),
        };
        parts.push(format!("{}{polled}", tied(counted(count, "halt"))));
    }
    if let Some(injected) = machine.injected {
        parts.push(format!("{} injected", tied(counted(injected, "interrupt"))));
    }
    if let Some(waits) = machine.waits.filter(|waits| waits.count > 0) {
        parts.push(format!(
            "{} for a CPU, up to {}",
            tied(counted(waits.count, "wait")),
            tied(waits.max)
        ));
    }
    if machine.unclassified != Nanos::ZERO {
        let time = tied(machine.unclassified);
        parts.push(format!(
            "{time} of the vCPUs' time is in no activity: events were lost"
        ));
    }
    format!("{}.", parts.join("; "))
}
