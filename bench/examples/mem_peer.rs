//! Compares the latencies that `ticktax mem` measures with those of lmbench's `lat_mem_rd -t`. The
//! two take turns, so a change in the machine's load affects both.
//!
//! `cargo figure mem_peer LAT_MEM_RD [turns]`, where `LAT_MEM_RD` is the path of lmbench's program.
//! Both measure CPU 0, with random loads on pages of 4 KiB, and working sets of up to 1 MiB:
//! `lat_mem_rd -t` can hang with larger ones.
//!
//! `ticktax mem` visits all lines of a working set in one random order. `lat_mem_rd -t` goes to
//! another page with each load, so more of its loads miss the TLB. The third column therefore has
//! the latencies of ticktax's loop in the order of `lat_mem_rd`.
#![expect(clippy::print_stdout, reason = "an example that reports")]

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;
use ticktax_mem::{Plan, caches_of, measure};
use ticktax_model::Cpu;
use ticktax_probes::clock::now;
use ticktax_probes::memory::{Mapping, Request, Ring};

/// CPU that both programs measure.
const CPU: Cpu = Cpu(0);
/// Largest working set.
const LARGEST: u64 = 1 << 20;
/// Time after which a turn of `lat_mem_rd` is stopped.
const LIMIT: Duration = Duration::from_mins(1);

/// Latencies in ns that one turn measured for a working set.
struct Turn {
    ours: f64,
    theirs: f64,
    in_their_order: f64,
}

/// Latencies in ns by size of the working set in bytes.
type Latencies = BTreeMap<u64, f64>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let program = arguments
        .next()
        .ok_or("give the path of lmbench's lat_mem_rd")?;
    let turns: usize = arguments.next().map_or(Ok(9), |text| text.parse())?;
    ticktax_probes::pin_to_cpu(CPU)?;
    let mut turns_by_size: BTreeMap<u64, Vec<Turn>> = BTreeMap::new();
    for turn in 1..=turns {
        let ours = ours()?;
        let Some(theirs) = theirs(&program)? else {
            println!("turn {turn}: lat_mem_rd took over {LIMIT:?} and was stopped");
            continue;
        };
        for (size, ours) in ours {
            if let Some(&theirs) = theirs.get(&size) {
                let turn = Turn {
                    ours,
                    theirs,
                    in_their_order: in_their_order(size)?,
                };
                turns_by_size.entry(size).or_default().push(turn);
            }
        }
    }
    println!("size KiB\tn\tticktax ns\tlat_mem_rd ns\tratio\tin its order ns\tratio");
    for (size, turns) in &turns_by_size {
        let column = |value: fn(&Turn) -> f64| {
            let mut values: Vec<f64> = turns.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let quarter = |values: &[f64], quarter: usize| values[(values.len() - 1) * quarter / 4];
        let median = |value: fn(&Turn) -> f64| quarter(&column(value), 2);
        let ratio = |value: fn(&Turn) -> f64| {
            let values = column(value);
            let [least, median, most] = [0, 2, 4].map(|place| quarter(&values, place));
            format!("{median:.3} ({least:.3} to {most:.3})")
        };
        println!(
            "{}\t{}\t{:.2}\t{:.2}\t{}\t{:.2}\t{}",
            size >> 10,
            turns.len(),
            median(|turn| turn.ours),
            median(|turn| turn.theirs),
            ratio(|turn| turn.ours / turn.theirs),
            median(|turn| turn.in_their_order),
            ratio(|turn| turn.in_their_order / turn.theirs),
        );
    }
    Ok(())
}

/// Measures the latency in the order of `lat_mem_rd -t`: each load goes to another page, and pages
/// and lines within a page come in random orders.
fn in_their_order(size: u64) -> Result<f64, Box<dyn std::error::Error>> {
    const PAGE: u64 = 4096;
    const LINE: u64 = 64;
    const REPETITIONS: usize = 11;
    /// Loads per repetition. The repetition before the first loads the caches and is not timed.
    const LOADS: u64 = 1 << 18;
    let mut random = Pcg64::new(u128::from(size), 0);
    let mut shuffled = |count: u64| {
        let mut order: Vec<u64> = (0..count).collect();
        for last in (1..order.len()).rev() {
            let chosen = random.next_u64() % (last as u64 + 1);
            order.swap(last, usize::try_from(chosen).unwrap_or(0));
        }
        order
    };
    let (pages, lines) = (shuffled(size / PAGE), shuffled(PAGE / LINE));
    let offsets: Vec<u64> = (0..lines.len())
        .flat_map(|round| pages.iter().enumerate().map(move |place| (round, place)))
        .map(|(round, (place, page))| page * PAGE + lines[(place + round) % lines.len()] * LINE)
        .collect();
    let mut memory = Mapping::new(usize::try_from(size)?, Request::Small)?;
    let mut ring = Ring::write(&mut memory, &offsets).ok_or("an offset outside the memory")?;
    ring.follow(LOADS / 16);
    let mut times: Vec<f64> = (0..REPETITIONS)
        .map(|_| {
            let start = now();
            ring.follow(LOADS / 16);
            (now() - start).0 as f64 / LOADS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Ok(times[REPETITIONS / 2])
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
