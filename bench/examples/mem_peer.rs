//! Compares the latencies that `ticktax mem` measures with those of lmbench's `lat_mem_rd -t`. The
//! two take turns, so a change in the machine's load affects both.
//!
//! `cargo figure mem_peer LAT_MEM_RD [turns]`, where `LAT_MEM_RD` is the path of lmbench's program.
//! Both measure CPU 0, with random loads on pages of 4 KiB, and working sets of up to 1 MiB:
//! `lat_mem_rd -t` can hang with larger ones.
#![expect(clippy::print_stdout, reason = "an example that reports")]

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ticktax_mem::{Plan, caches_of, measure};
use ticktax_model::Cpu;

/// CPU that both programs measure.
const CPU: Cpu = Cpu(0);
/// Largest working set.
const LARGEST: u64 = 1 << 20;
/// Time after which a turn of `lat_mem_rd` is stopped.
const LIMIT: Duration = Duration::from_mins(1);

/// Latencies in ns by size of the working set in bytes.
type Latencies = BTreeMap<u64, f64>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let program = arguments
        .next()
        .ok_or("give the path of lmbench's lat_mem_rd")?;
    let turns: usize = arguments.next().map_or(Ok(9), |text| text.parse())?;
    let mut ratios: BTreeMap<u64, Vec<[f64; 3]>> = BTreeMap::new();
    for turn in 1..=turns {
        let ours = ours()?;
        let Some(theirs) = theirs(&program)? else {
            println!("turn {turn}: lat_mem_rd took over {LIMIT:?} and was stopped");
            continue;
        };
        for (size, ns) in ours {
            if let Some(other) = theirs.get(&size) {
                ratios
                    .entry(size)
                    .or_default()
                    .push([ns / other, ns, *other]);
            }
        }
    }
    println!("size KiB\tn\tticktax ns\tlat_mem_rd ns\tratio\tquartiles\tleast to most");
    for (size, each) in &ratios {
        let column = |place: usize| {
            let mut values: Vec<f64> = each.iter().map(|row| row[place]).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let [ratio, ours, theirs] = [0, 1, 2].map(column);
        let at = |values: &[f64], quarter: usize| values[(values.len() - 1) * quarter / 4];
        println!(
            "{}\t{}\t{:.2}\t{:.2}\t{:.3}\t{:.3} to {:.3}\t{:.3} to {:.3}",
            size >> 10,
            each.len(),
            at(&ours, 2),
            at(&theirs, 2),
            at(&ratio, 2),
            at(&ratio, 1),
            at(&ratio, 3),
            at(&ratio, 0),
            at(&ratio, 4)
        );
    }
    Ok(())
}

/// Measures with ticktax, on small pages.
fn ours() -> Result<Latencies, ticktax_mem::MemError> {
    let plan = Plan {
        cpu: CPU,
        caches: caches_of(Path::new("/"), CPU),
        max_bytes: Some(LARGEST),
    };
    let points = measure(&plan)?.points.into_iter();
    Ok(points
        .map(|point| (point.size_bytes, point.small.median_ns))
        .collect())
}

/// Runs `lat_mem_rd`. Returns `None` if it has not ended after [`LIMIT`].
fn theirs(program: &str) -> Result<Option<Latencies>, Box<dyn std::error::Error>> {
    let mut child = Command::new("taskset")
        .args(["-c", &CPU.to_string(), program, "-t", "-P", "1", "-N", "1"])
        .args([(LARGEST >> 20).to_string(), "64".to_owned()])
        // Without these, lmbench first measures its own overhead, which can take minutes.
        .envs([("ENOUGH", "10000"), ("TIMING_O", "0"), ("LOOP_O", "0")])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let mut output = child.stderr.take().ok_or("no output of lat_mem_rd")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let has_ended = ends_in_time(&mut child)?;
    // The program's own children ignore SIGTERM.
    let group = nix::unistd::Pid::from_raw(i32::try_from(child.id())?);
    let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
    child.wait()?;
    let text = reader.join().map_err(|_| "the reader panicked")??;
    if !has_ended {
        return Ok(None);
    }
    let rows = text.lines().filter_map(|line| {
        let (mebibytes, ns) = line.split_once(' ')?;
        let mebibytes: f64 = mebibytes.parse().ok()?;
        // The printed size is rounded to five digits; all sizes are multiples of 512 bytes.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most 1 MiB"
        )]
        let size = (mebibytes * 2048.0).round() as u64 * 512;
        Some((size, ns.parse().ok()?))
    });
    Ok(Some(rows.collect()))
}

fn ends_in_time(child: &mut Child) -> std::io::Result<bool> {
    const STEP: Duration = Duration::from_millis(50);
    let mut waited = Duration::ZERO;
    while waited < LIMIT {
        if child.try_wait()?.is_some() {
            return Ok(true);
        }
        std::thread::sleep(STEP);
        waited += STEP;
    }
    Ok(false)
}
