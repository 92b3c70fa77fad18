//! A guest that is itself a host: it loads KVM and runs two virtual machines, whose exits are
//! known.

use std::fs::{self, File};
use std::path::Path;

use libtest_mimic::Failed;
use nix::kmod::{ModuleInitFlags, finit_module};
use ticktax_inject::vm::{VmPlan, VmTruth};
use ticktax_lab::GuestFile;
use ticktax_lab::guest::TOOLS;
use ticktax_lab::kernel::{Cache, fetch_kernel_package};
use ticktax_model::Nanos;
use ticktax_model::guests::{GuestMachine, GuestNamedBy};
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

/// The virtual machines. The first two run at the same time and have the same name.
const PLANS: [VmPlan; 3] = [
    VmPlan {
        cpuids: 1_234,
        writes: 567,
        halts: 200,
        hz: 100,
    },
    VmPlan {
        cpuids: 40,
        writes: 3,
        halts: 150,
        hz: 250,
    },
    VmPlan {
        cpuids: 20_000,
        writes: 10_000,
        halts: 400,
        hz: 10_000,
    },
];

/// Number of the machine that exits most often.
const BUSY: usize = 2;
/// Time of an instruction on the clock [`COUNTED`].
const NS_PER_INSTRUCTION: u64 = 4;
/// File with the truth about the same machine, run before the audit.
const UNTRACED: &str = "untraced.json";
/// Maximum cost of tracing one exit and the entry that follows, in instructions of the host.
const MOST_INSTRUCTIONS: u64 = 1_000;

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
    let begin_as = |number: usize, truth: &str| {
        let plan = serde_json::to_string(&PLANS[number])?;
        let name = if number < 2 {
            "guest=web,debug-threads=on"
        } else {
            "busy"
        };
        start("qemu-tiny", &["vm", &plan, truth, "-name", name])
    };
    finish(begin_as(BUSY, UNTRACED)?)?;
    let audit = ["audit", "--probe", "none", "--for", "10m"];
    let save = ["--format", "json", "--save", "audit.parquet"];
    let tracer = Tracer::start("audit", &[&audit[..], &save].concat())?;
    let begin = |number: usize| begin_as(number, &truth_file(number));
    let (first, second) = (begin(0)?, begin(1)?);
    finish(first)?;
    finish(second)?;
    finish(begin(BUSY)?)?;
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
    let (traced, untraced) = (
        truth_in(folder, &truth_file(BUSY))?,
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
    assert!(waited + 5 >= u64::from(plan.halts), "{shown}");
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
    // The scheduler's own sum includes interrupts, but not the end of the thread, which can take
    // milliseconds.
    let run = Nanos(truth.run_ns.cast_signed());
    assert!(machine.vcpus[0].time.0 * 100 >= run.0 * 98, "{shown}");
}
