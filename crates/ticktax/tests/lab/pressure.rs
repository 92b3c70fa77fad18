//! A guest in which one program floods a slow disk while another writes a little to a fast one.
//! `ticktax storage pressure` must name both, with the time that the second program waited.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::mem;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde::{Deserialize, Serialize};
use ticktax_lab::GuestFile;
use ticktax_lab::guest::TOOLS;
use ticktax_lab::kernel::{Cache, fetch_kernel_package};
use ticktax_lab::qemu::{Clock, Disk};
use ticktax_model::Nanos;
use ticktax_model::pressure::{
    ByteLevel, PressedProgram, PressureLimit, PressureLimitation, PressureVerdict, PressureWaits,
    WritePressure,
};
use ticktax_probes::clock::{now, thread_cpu_time};

use crate::boot::Guest;
use crate::checks::check;
use crate::fixture::kernel_in;
use crate::inside::{Outcome, finish, note, start, ticktax};

/// The argument that tells this guest what to do.
pub(crate) const VERB: &str = "pressure-guest";
/// Kernels to test. Both pass the tracepoint's values as separate arguments. Newer ones pass a
/// pointer.
pub(crate) const KERNELS: [(&str, &str); 2] = [
    (
        "a_flooded_disks_victims_are_found",
        "linux-image-cloud-amd64",
    ),
    (
        "a_flooded_disks_victims_are_found_on_5_10",
        "bullseye:linux-image-cloud-amd64",
    ),
];

/// The slow disk, and how many bytes it writes per second.
const SLOW: &str = "/dev/nvme0n1";
const SLOW_HZ: u64 = 4 << 20;
const SLOW_BYTES: u64 = 192 << 20;
const SLOW_FOLDER: &str = "/tmp/slow";
/// The fast disk is in memory.
const FAST: &str = "/dev/ram0";
const FAST_BDI: &str = "1:0";
const FAST_BYTES: u64 = 48 << 20;
const FAST_FOLDER: &str = "/tmp/fast";
const MODULE: &str = "brd.ko";
const IMAGE: &str = "fast.image";

/// Limits on dirty data.
const LIMIT: u64 = 16 << 20;
const BACKGROUND: u64 = 8 << 20;

/// Names of the programs.
const WRITER: &str = "flood";
const PAYER: &str = "gamesrv";
/// The payer writes this much at a time, at this interval, for this long.
const WRITE: usize = 256 << 10;
/// Size of its file, which it overwrites from the start.
const PAYER_BYTES: u64 = 24 << 20;
const PAUSE: Duration = Duration::from_millis(20);
const PAYING: Nanos = Nanos::from_millis(6_000);
/// Length of a run of ticktax, and the time that it gets to start.
const RUN: &str = "13s";
const STARTED: Duration = Duration::from_secs(3);
/// A write that was off the CPU for longer counts as throttled.
const LONG: Nanos = Nanos::from_millis(4);
/// Upper limit, in percent, on other sleeps and preemption in the payer's throttled writes. ticktax
/// does not count them. Runs had 0.3 to 6.2 %.
const OTHER_WAITS: i64 = 15;

/// Files with results. The last one is written last.
const TEXT: &str = "pressure.txt";
const HTML: &str = "pressure.html";
const TRACED: &str = "traced.json";
const SMALL_SHARE: &str = "small-share.json";
const QUIET: &str = "quiet.json";

/// Runs in the guest.
pub(crate) fn run() -> Outcome {
    let file = File::open(Path::new(TOOLS).join(MODULE))?;
    finit_module(&file, c"rd_nr=1 rd_size=49152", ModuleInitFlags::empty())?;
    fs::write(FAST, fs::read(Path::new(TOOLS).join(IMAGE))?)?;
    for (disk, folder) in [(SLOW, SLOW_FOLDER), (FAST, FAST_FOLDER)] {
        fs::create_dir_all(folder)?;
        mount(
            Some(disk),
            folder,
            Some("ext4"),
            MsFlags::empty(),
            None::<&str>,
        )?;
    }
    fs::write(
        "/proc/sys/vm/dirty_background_bytes",
        BACKGROUND.to_string(),
    )?;
    fs::write("/proc/sys/vm/dirty_bytes", LIMIT.to_string())?;
    // Both programs start during the run, so its times cover the payer's whole life.
    note("without debugfs")?;
    umount2("/sys/kernel/debug", MntFlags::MNT_DETACH)?;
    watched(TRACED, &[])?;
    note("as text")?;
    let debugfs = Some("debugfs");
    mount(
        debugfs,
        "/sys/kernel/debug",
        debugfs,
        MsFlags::empty(),
        None::<&str>,
    )?;
    watched(TEXT, &["--html", HTML])?;
    note("with a small share")?;
    let slow = fs::read_to_string("/sys/class/block/nvme0n1/dev")?;
    let share = format!("/sys/class/bdi/{}/max_ratio", slow.trim());
    fs::write(share, "1")?;
    watched(SMALL_SHARE, &[])?;
    note("without writers")?;
    let output = File::create(QUIET)?;
    let mut quiet = pressure("1s");
    finish(quiet.args(["--format", "json"]).stdout(output).spawn()?)
}

fn pressure(length: &str) -> Command {
    let mut command = ticktax();
    command.args(["storage", "pressure", "--for", length]);
    command
}

/// Runs ticktax, and both programs at the same time. Its output goes to `output`, and the payer's
/// own count to a file with a similar name.
fn watched(output: &str, more: &[&str]) -> Outcome {
    let mut command = pressure(RUN);
    if output.ends_with("json") {
        command.args(["--format", "json"]);
    }
    let running = command.args(more).stdout(File::create(output)?).spawn()?;
    thread::sleep(STARTED);
    let mut writer = start(WRITER, &["flood", SLOW_FOLDER])?;
    thread::sleep(Duration::from_secs(2));
    let own = own_count(output);
    finish(start(PAYER, &["pays", FAST_FOLDER, &own])?)?;
    let watched = finish(running);
    stop(&mut writer)?;
    nix::unistd::sync();
    watched
}

fn stop(program: &mut Child) -> Outcome {
    program.kill()?;
    program.wait()?;
    Ok(())
}

fn own_count(output: &str) -> String {
    format!("{output}.own")
}

/// Overwrites a file over and over until it is killed.
pub(crate) fn flood(folder: &str) -> Outcome {
    let mut file = File::create(Path::new(folder).join("flood"))?;
    let block = vec![1; 1 << 20];
    loop {
        file.seek(SeekFrom::Start(0))?;
        for _ in 0..96 {
            file.write_all(&block)?;
        }
    }
}

/// The payer's own count of the time that its writes were off the CPU.
#[derive(Debug, Default, Serialize, Deserialize)]
struct OwnWaits {
    all: PressureWaits,
    /// Writes that were off the CPU for longer than [`LONG`].
    throttled: PressureWaits,
}

impl OwnWaits {
    /// Returns the mean time per write, in nanoseconds.
    fn mean(&self) -> Outcome<u64> {
        let time = u64::try_from(self.all.time.0)?;
        Ok(time.checked_div(self.all.count).ok_or("no writes")?)
    }
}

/// Writes a little at regular intervals, and counts the time that the writes were off the CPU.
pub(crate) fn pays(folder: &str, own: &str) -> Outcome {
    let mut file = File::create(Path::new(folder).join("state"))?;
    let block = vec![1; WRITE];
    let end = now() + PAYING;
    let mut waits = OwnWaits::default();
    while now() < end {
        // The kernel throttles only writes to pages that are not dirty yet.
        if file.stream_position()? >= PAYER_BYTES {
            file.seek(SeekFrom::Start(0))?;
        }
        let (start, start_cpu) = (now(), thread_cpu_time());
        file.write_all(&block)?;
        let on_cpu = thread_cpu_time() - start_cpu;
        let off_cpu = now() - start - on_cpu;
        waits.all.add(off_cpu);
        if off_cpu > LONG {
            waits.throttled.add(off_cpu);
        }
        thread::sleep(PAUSE);
    }
    Ok(fs::write(own, serde_json::to_vec(&waits)?)?)
}

/// Creates an ext4 file system in a file.
fn make_disk(path: &Path, bytes: u64) -> Outcome {
    File::create_new(path)?.set_len(bytes)?;
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-E"])
        .arg("lazy_itable_init=0,lazy_journal_init=0")
        .arg(path)
        .output()?;
    check(made.status.success(), || {
        String::from_utf8_lossy(&made.stderr).into_owned()
    })
}

pub(crate) fn why_not() -> Option<String> {
    if cfg!(not(target_arch = "x86_64")) {
        return Some("its kernel module is only known for x86-64".to_owned());
    }
    let is_missing = Command::new("mke2fs").arg("-V").output().is_err();
    is_missing.then(|| "mke2fs is missing (apt-get install e2fsprogs)".to_owned())
}

pub(crate) fn test(package: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (slow, fast) = (folder.path().join("slow"), folder.path().join(IMAGE));
    make_disk(&slow, SLOW_BYTES)?;
    make_disk(&fast, FAST_BYTES)?;
    let variable = std::env::var_os;
    let cache = Cache::of_user(variable("XDG_CACHE_HOME"), variable("HOME"))?;
    let unpacked = fetch_kernel_package(package, &cache, &mut |_| {})?;
    let (kernel, release) = kernel_in(&unpacked)?;
    let modules = unpacked.files.join("lib/modules").join(release);
    let file = |name: &str, file| GuestFile {
        name: name.to_owned(),
        file,
    };
    let files = [
        file(MODULE, modules.join("kernel/drivers/block").join(MODULE)),
        file(IMAGE, fast),
    ];
    let guest = Guest {
        kernel: &kernel.to_string_lossy(),
        clock: Clock::Tcg,
        disk: Some(Disk::File {
            path: &slow,
            write_bytes_hz: Some(SLOW_HZ),
        }),
        files: &files,
        ..Guest::counting(VERB)
    };
    let returned = guest.returned("TICKTAX_PRESSURE_FOLDER", QUIET)?;
    judge(&returned.folder)
}

fn read(folder: &Path, file: &str) -> Outcome<WritePressure> {
    Ok(serde_json::from_slice(&fs::read(folder.join(file))?)?)
}

fn own_waits(folder: &Path, file: &str) -> Outcome<OwnWaits> {
    let own = fs::read(folder.join(own_count(file)))?;
    Ok(serde_json::from_slice(&own)?)
}

fn judge(folder: &Path) -> Result<(), Failed> {
    let found = read(folder, TRACED)?;
    let own = own_waits(folder, TRACED)?;
    judge_traced(&found, &own)?;
    for (error, wrong) in wrong_results(&found) {
        check(judge_traced(&wrong, &own).is_err(), || {
            format!("the test accepts {error}: {wrong:#?}")
        })?;
    }
    for page in [TEXT, HTML] {
        let page = fs::read_to_string(folder.join(page))?;
        check(page.contains("OTHERS") && page.contains(WRITER), || {
            page.clone()
        })?;
    }
    // With a smaller share for the slow disk, the payer's writes are faster.
    let (before, after) = (own_waits(folder, TEXT)?, own_waits(folder, SMALL_SHARE)?);
    check(after.mean()? * 3 < before.mean()? * 2, || {
        format!("{before:?}, {after:?}")
    })?;
    let quiet = read(folder, QUIET)?;
    check(quiet.verdict == Some(PressureVerdict::Quiet), || {
        format!("{quiet:#?}")
    })
}

fn payer(found: &WritePressure) -> Option<&PressedProgram> {
    let mut programs = found.programs.iter().flatten();
    programs.find(|program| program.name == PAYER)
}

fn judge_traced(found: &WritePressure, own: &OwnWaits) -> Result<(), Failed> {
    let context = || format!("{own:?}, {found:#?}");
    check(found.verdict == Some(PressureVerdict::Others), context)?;
    let is_missed = |limitation: &_| {
        matches!(
            limitation,
            PressureLimitation::NotTraced { .. } | PressureLimitation::Lost { .. }
        )
    };
    check(!found.limitations.iter().any(is_missed), context)?;
    let cause = found.causes.first().ok_or("no cause")?;
    check(cause.payer == PAYER && cause.payer_bdi == FAST_BDI, context)?;
    check(cause.writer.as_deref() == Some(WRITER), context)?;
    check(cause.limit == PressureLimit::Machine, context)?;
    // Pauses lie within writes, off the CPU. A write can also wait for other things.
    let measured = payer(found).ok_or("the payer is missing")?.throttled;
    check(measured.count > 3 && own.throttled.count > 3, context)?;
    check(measured.time <= own.all.time, context)?;
    check(measured.max <= own.all.max, context)?;
    let missed = (own.throttled.time - measured.time).0;
    check(missed * 100 <= own.throttled.time.0 * OTHER_WAITS, context)?;
    check(cause.time <= measured.time, context)?;
    check(cause.time.0 * 2 > measured.time.0, context)?;
    let slow = found
        .devices
        .iter()
        .find(|device| Some(&device.bdi) == cause.bdi.as_ref());
    let slow = slow.ok_or("no slow device")?;
    check(slow.mounts == [SLOW_FOLDER], context)?;
    // The disk writes at its full speed for most of the run. The kernel's estimate starts at
    // 100 MiB per second and falls slowly.
    let written = slow.written_bytes.ok_or("no written bytes")?;
    let possible = SLOW_HZ * u64::try_from(found.length.0)? / 1_000_000_000;
    check(
        (possible / 2..possible + possible / 10).contains(&written),
        context,
    )?;
    let speed = slow.bandwidth_bytes_hz.ok_or("no speed")?;
    check((SLOW_HZ / 2..200 << 20).contains(&speed), context)?;
    let most = |level: Option<ByteLevel>| level.map_or(0, |level| level.max_bytes);
    check(
        most(slow.dirty) + most(slow.writeback) > BACKGROUND,
        context,
    )
}

/// Returns results that the checks must reject, each with its error.
fn wrong_results(found: &WritePressure) -> [(&'static str, WritePressure); 3] {
    let mut swapped = found.clone();
    for cause in &mut swapped.causes {
        if let Some(writer) = &mut cause.writer {
            mem::swap(&mut cause.payer, writer);
        }
    }
    let scaled = |multiplier: i64, divisor: i64| {
        let mut scaled = found.clone();
        for program in scaled.programs.iter_mut().flatten() {
            let time = &mut program.throttled.time;
            time.0 = time.0 * multiplier / divisor;
        }
        scaled
    };
    [
        ("a swap of writer and payer", swapped),
        ("a doubled time", scaled(2, 1)),
        ("half of the time", scaled(1, 2)),
    ]
}
