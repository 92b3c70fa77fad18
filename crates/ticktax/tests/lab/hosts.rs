//! A guest that is itself a host: it loads KVM and runs two virtual machines, whose exits are
//! known.

use std::fs::{self, File};
use std::path::Path;

use libtest_mimic::Failed;
use nix::kmod::{ModuleInitFlags, finit_module};
use ticktax_inject::vm::{VmPlan, VmTimer, VmTruth};
use ticktax_lab::GuestFile;
use ticktax_lab::guest::TOOLS;
use ticktax_lab::kernel::{Cache, fetch_kernel_package};
use ticktax_model::Nanos;
use ticktax_model::guests::{GuestMachine, GuestNamedBy, GuestStatement, TickMode, TimeEstimate};
use ticktax_store::recording::RecordingReader;

use crate::boot::{COUNTED, Guest};
use crate::checks::{check, statement_in};
use crate::fixture::{CLOUD, kernel_in};
use crate::inside::{Outcome, Tracer, finish, start};

/// The argument that tells this guest what to do.
pub(crate) const VERB: &str = "host-guest";

/// KVM's modules in the order in which they are loaded, with their paths below
/// `/lib/modules/RELEASE/kernel`. KVM needs `ccp` only in some kernels.
const MODULES: [(&str, &str); 4] = [
    ("irqbypass.ko", "virt/lib"),
    ("kvm.ko", "arch/x86/kvm"),
    ("ccp.ko", "drivers/crypto/ccp"),
    ("kvm-amd.ko", "arch/x86/kvm"),
];

const PLAN: VmPlan = VmPlan {
    cpuids: 0,
    writes: 0,
    halts: 0,
    timer: VmTimer::Chip,
    hz: 100,
    irregular: false,
    tid: 0,
};

/// The virtual machines. The first two run at the same time and have the same name. Each has its
/// own number of `cpuid` instructions.
const PLANS: [VmPlan; 8] = [
    VmPlan {
        cpuids: 1_234,
        writes: 567,
        halts: 200,
        ..PLAN
    },
    VmPlan {
        cpuids: 40,
        writes: 3,
        halts: 150,
        hz: 250,
        ..PLAN
    },
    VmPlan {
        cpuids: 20_000,
        writes: 10_000,
        halts: 400,
        hz: 10_000,
        ..PLAN
    },
    VmPlan {
        cpuids: 11,
        halts: 500,
        timer: VmTimer::Periodic,
        hz: 1_000,
        ..PLAN
    },
    VmPlan {
        cpuids: 12,
        halts: 200,
        timer: VmTimer::Periodic,
        hz: 250,
        ..PLAN
    },
    VmPlan {
        cpuids: 13,
        halts: 150,
        timer: VmTimer::OneShot,
        hz: 100,
        irregular: true,
        ..PLAN
    },
    VmPlan {
        cpuids: 20_014,
        writes: 10_000,
        halts: 100,
        timer: VmTimer::None,
        irregular: true,
        ..PLAN
    },
    // Its vCPU's thread has the ID that the first machine's had.
    VmPlan {
        cpuids: 15,
        halts: 120,
        hz: 300,
        irregular: true,
        ..PLAN
    },
];

/// Names of the virtual machines.
const NAMES: [&str; PLANS.len()] = [
    "web", "web", "busy", "db", "cache", "mail", "proxy", "batch",
];

/// Number of the first machine that runs alone.
const ALONE: usize = 2;
/// Number of the machine without a timer. Its time depends on its exits alone.
const TIMERLESS: usize = 6;
/// Time of an instruction on the clock [`COUNTED`].
const NS_PER_INSTRUCTION: u64 = 4;
/// Maximum time of an interrupt of the host, in which it runs the timer of a machine. The audit
/// charges 18 µs to the average one. Depending on how the program was built, few or most of them
/// hit the vCPU's thread.
const INTERRUPT: Nanos = Nanos::from_micros(20);
/// File with the truth about the same machine, run before the audit.
const UNTRACED: &str = "untraced.json";
/// Maximum cost of tracing one exit and the entry that follows, in instructions of the host: twice
/// the cost of tracing a context switch (`docs/benchmarks.md`). A third of the exits also return to
/// the process.
const MOST_INSTRUCTIONS: u64 = 2 * 708;

/// Returns the name of the file with the truth about the machine with this number.
fn truth_file(number: usize) -> String {
    format!("vm-{number}.json")
}

/// Runs in the guest.
pub(crate) fn run() -> Outcome {
    for (module, _) in MODULES {
        let path = Path::new(TOOLS).join(module);
        let Ok(file) = File::open(&path) else {
            continue;
        };
        finit_module(&file, c"", ModuleInitFlags::empty())
            .map_err(|errno| format!("cannot load {module}: {errno}"))?;
    }
    let begin_as = |number: usize, tid: i32, truth: &str| {
        let plan = VmPlan {
            tid,
            ..PLANS[number]
        };
        let plan = serde_json::to_string(&plan)?;
        let name = format!("guest={},debug-threads=on", NAMES[number]);
        start("qemu-tiny", &["vm", &plan, truth, "-name", &name])
    };
    finish(begin_as(TIMERLESS, 0, UNTRACED)?)?;
    let audit = ["audit", "--probe", "none", "--for", "10m"];
    let save = ["--format", "json", "--save", "audit.parquet"];
    let tracer = Tracer::start("audit", &[&audit[..], &save].concat())?;
    let begin = |number: usize| begin_as(number, 0, &truth_file(number));
    let (first, second) = (begin(0)?, begin(1)?);
    finish(first)?;
    finish(second)?;
    for number in ALONE..PLANS.len() - 1 {
        finish(begin(number)?)?;
    }
    let tid = truth_in(Path::new("."), &truth_file(0))?.tid;
    let last = PLANS.len() - 1;
    finish(begin_as(last, tid, &truth_file(last))?)?;
    tracer.interrupt()
}

/// Runs a virtual machine.
pub(crate) fn program(plan: &str, truth: &str) -> Result<(), Failed> {
    let plan: VmPlan = serde_json::from_str(plan)?;
    let done = ticktax_inject::vm::run(&plan)?;
    Ok(fs::write(truth, serde_json::to_vec(&done)?)?)
}

pub(crate) fn test() -> Outcome {
    let variable = std::env::var_os;
    let cache = Cache::of_user(variable("XDG_CACHE_HOME"), variable("HOME"))?;
    let package = fetch_kernel_package(CLOUD, &cache, &mut |_| {})?;
    let (kernel, release) = kernel_in(&package)?;
    let modules = package
        .files
        .join("lib/modules")
        .join(release)
        .join("kernel");
    let files: Vec<GuestFile> = MODULES
        .iter()
        .map(|(name, folder)| GuestFile {
            name: (*name).to_owned(),
            file: modules.join(folder).join(name),
        })
        .filter(|module| module.file.is_file())
        .collect();
    let guest = Guest {
        kernel: &kernel.to_string_lossy(),
        verb: VERB,
        cmdline: "transparent_hugepage=never",
        cpus: 1,
        clock: COUNTED,
        debugger: None,
        disk: None,
        files: &files,
    };
    let returned = guest.returned("TICKTAX_HOST_GUEST", "audit.parquet")?;
    judge(&returned.folder)
}

/// Compares the statement with what the machines did, and with KVM's counters.
fn judge(folder: &Path) -> Outcome {
    let statement = statement_in(folder, "audit")?;
    // The recording must contain the same sums.
    let header = RecordingReader::open(folder.join("audit.parquet"))?
        .header()
        .clone();
    assert!(header.guests.is_some());
    assert!(statement.balances(), "{:?}", statement.balance);
    let guests = statement.guests.ok_or("no virtual machine was seen")?;
    assert_eq!(guests.machines.len(), PLANS.len());
    for (number, plan) in PLANS.iter().enumerate() {
        let truth = truth_in(folder, &truth_file(number))?;
        let cpuids = u64::from(plan.cpuids);
        let is_same = |machine: &&GuestMachine| count(machine, "cpuid") == cpuids;
        let machine = guests.machines.iter().find(is_same);
        let machine = machine.ok_or_else(|| format!("no machine like {plan:?}: {guests:#?}"))?;
        machine_is_as(machine, plan, &truth);
    }
    prediction_holds(&guests)?;
    let (traced, untraced) = (
        truth_in(folder, &truth_file(TIMERLESS))?,
        truth_in(folder, UNTRACED)?,
    );
    let cost = traced.run_ns.saturating_sub(untraced.run_ns) / traced.counters["exits"];
    let instructions = cost / NS_PER_INSTRUCTION;
    check(instructions <= MOST_INSTRUCTIONS, || {
        format!("tracing costs {instructions} instructions per exit")
    })?;
    let same_name = guests
        .machines
        .iter()
        .filter(|machine| machine.name == "web");
    assert_eq!(same_name.count(), 2);
    Ok(())
}

fn truth_in(folder: &Path, file: &str) -> Outcome<VmTruth> {
    Ok(serde_json::from_slice(&fs::read(folder.join(file))?)?)
}

fn count(machine: &GuestMachine, reason: &str) -> u64 {
    let reasons = machine
        .reasons
        .iter()
        .filter(|exits| exits.reason == reason);
    reasons.map(|exits| exits.sum.count).sum()
}

fn machine_is_as(machine: &GuestMachine, plan: &VmPlan, truth: &VmTruth) {
    let shown = format!("{machine:#?}\n{truth:#?}");
    let counter = |name: &str| truth.counters[name];
    assert_eq!(machine.named_by, Some(GuestNamedBy::Qemu), "{shown}");
    assert_eq!(truth.writes, u64::from(plan.writes), "{shown}");
    // KVM's own counters, exactly.
    assert_eq!(machine.exits, counter("exits"), "{shown}");
    assert_eq!(count(machine, "hlt"), counter("halt_exits"), "{shown}");
    assert_eq!(count(machine, "io"), counter("io_exits"), "{shown}");
    assert_eq!(count(machine, "interrupt"), counter("irq_exits"), "{shown}");
    assert_eq!(count(machine, "hlt"), u64::from(plan.halts), "{shown}");
    let halts = machine.halts.unwrap();
    // If an interrupt is pending already, a halt neither polls nor sleeps.
    let waited = halts.polled + halts.slept;
    assert!(waited <= u64::from(plan.halts), "{shown}");
    assert!(waited * 10 >= u64::from(plan.halts) * 9, "{shown}");
    timer_is_as(machine, plan);
    assert_eq!(halts.polled, counter("halt_successful_poll"), "{shown}");
    let slept = Nanos(counter("halt_wait_ns").cast_signed());
    let failed = Nanos(counter("halt_poll_fail_ns").cast_signed());
    assert_eq!(halts.slept_time, slept + failed, "{shown}");
    let polled = Nanos(counter("halt_poll_success_ns").cast_signed());
    assert_eq!(halts.polled_time, polled, "{shown}");
    assert_eq!(machine.injected, Some(counter("irq_injections")), "{shown}");
    // Each nanosecond of the machine's threads has one activity.
    let GuestMachine {
        guest,
        kvm,
        vmm,
        unknown,
        other_threads,
        kernel_threads,
        unclassified,
        ..
    } = *machine;
    let sum = guest + kvm + vmm + unknown + other_threads + kernel_threads + unclassified;
    assert_eq!(sum, machine.time, "{shown}");
    assert_eq!(unclassified, Nanos::ZERO, "{shown}");
    assert_eq!(machine.vcpus.len(), 1, "{shown}");
    assert_eq!(machine.vcpus[0].mismatch, Some(Nanos::ZERO), "{shown}");
    // The scheduler's own sum includes the host's interrupts, one for each that KVM injects, but not
    // the end of the thread, which can take milliseconds.
    let run = Nanos(truth.run_ns.cast_signed());
    let interrupts = Nanos(INTERRUPT.0 * counter("irq_injections").cast_signed());
    let least = Nanos(run.0 * 98 / 100) - interrupts;
    assert!(machine.vcpus[0].time >= least, "{shown}");
}

/// Compares the saving that one machine's cost predicts with another machine's cost. Both have the
/// same timer, but at 1,000 and at 250 Hz.
fn prediction_holds(guests: &GuestStatement) -> Outcome {
    let each = |cpuids: u64| -> Option<TimeEstimate> {
        let mut machines = guests.machines.iter();
        let machine = machines.find(|machine| count(machine, "cpuid") == cpuids)?;
        machine.ticks.as_ref()?.each
    };
    let (fast, slow) = (each(11).ok_or("no cost")?, each(12).ok_or("no cost")?);
    let ratio = slow.mean.0 as f64 / fast.mean.0 as f64;
    check((0.9..1.1).contains(&ratio), || {
        format!("a tick costs {fast:?} at 1,000 Hz, but {slow:?} at 250 Hz")
    })
}

/// Compares a machine's timer with its plan.
fn timer_is_as(machine: &GuestMachine, plan: &VmPlan) {
    let shown = format!("{plan:?}\n{machine:#?}");
    let timer = machine.vcpus[0].timer.as_ref();
    if plan.timer == VmTimer::None {
        assert_eq!((timer, machine.ticks.as_ref()), (None, None), "{shown}");
        return;
    }
    let timer = timer.unwrap_or_else(|| panic!("no timer: {shown}"));
    // KVM's timers expire at most 5,000 times per second.
    let hz = plan.hz.min(5_000);
    let regular = timer
        .regular
        .unwrap_or_else(|| panic!("not regular: {shown}"));
    assert!((regular / f64::from(hz) - 1.0).abs() < 0.01, "{shown}");
    // The guest starts a one-shot timer late, which makes its period longer.
    let is_exact = hz <= 1_000 && plan.timer != VmTimer::OneShot;
    assert_eq!(timer.hz, is_exact.then_some(hz), "{shown}");
    assert_eq!(timer.is_pit, plan.timer == VmTimer::Chip, "{shown}");
    assert_eq!(timer.is_one_shot, plan.timer == VmTimer::OneShot, "{shown}");
    // The guest with the fastest timer also works at other times, so it may have been idle only then.
    let mode = match plan.hz {
        5_001.. => TickMode::Unknown,
        _ => TickMode::KeepsTicking,
    };
    assert_eq!(timer.mode, mode, "{shown}");
    // The guest ends each interrupt of its local APIC's timer with an exit. It also wrote six
    // registers to start the timer.
    let ends = machine.interrupt_ends.unwrap();
    let writes = count(machine, "msr").saturating_sub(6);
    let each = 1 + u64::from(timer.is_one_shot);
    assert_eq!(
        (ends.count, ends.without_exit),
        (writes / each, 0),
        "{shown}"
    );
    let halts = u64::from(plan.halts);
    if !plan.irregular {
        // The timer also expires while the guest starts and ends.
        assert!((halts..2 * halts).contains(&timer.ticks), "{shown}");
    }
    if hz > 1_000 {
        return;
    }
    // A halt, and the writes that acknowledge the interrupt and start the timer again. Some ticks
    // come while another is handled.
    let ticks = machine.ticks.as_ref().unwrap();
    let exits = ticks.cost.exits_per_tick().unwrap();
    let expected = 2.0 + f64::from(u8::from(timer.is_one_shot));
    assert!((exits - expected).abs() < 0.2, "{shown}");
    if plan.timer == VmTimer::Periodic {
        // Nearly all time in these exits is due to ticks.
        let of = |reason: &str| -> Nanos {
            let exits = machine
                .reasons
                .iter()
                .filter(|exits| exits.reason == reason);
            exits.map(|exits| exits.sum.kvm).sum()
        };
        let share = ticks.cost.host.share_of(of("hlt") + of("msr"));
        assert!((0.95..=1.0).contains(&share), "{share}: {shown}");
    }
    let (mean, cost) = (ticks.each.unwrap().mean, ticks.cost);
    assert!(
        (mean.0 - cost.host.0 / cost.ticks.cast_signed()).abs() <= 1,
        "{shown}"
    );
}
