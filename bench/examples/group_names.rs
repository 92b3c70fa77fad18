//! Measures how long it takes to name the groups on a machine with many Docker containers.
//!
//! `cargo figure group_names [containers] [repetitions]`. The files are written to a temporary
//! directory. They are all in the page cache, as they are when the containers are running.
#![expect(clippy::print_stdout, reason = "an example that reports")]

use std::error::Error;
use std::fs;
use std::path::Path;

use ticktax_host::{Proc, own_peak_memory, own_thread_cpu_time};
use ticktax_probes::clock::now;

/// Size of a container's state file, in bytes. Docker's are about 5 kB.
const STATE_BYTES: usize = 5_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| match arguments.next() {
        Some(text) => text.parse(),
        None => Ok(default),
    };
    let (containers, repetitions) = (number(5_000)?, number(20)?);
    let root = tempfile::tempdir()?;
    let paths: Vec<String> = (0..containers)
        .map(|number| write_container(root.path(), number))
        .collect::<Result<_, _>>()?;
    let proc = Proc::at(root.path());
    let before = own_peak_memory();
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let (begin, used) = (now(), own_thread_cpu_time());
        let named = proc.groups(paths.iter().map(String::as_str));
        wall.push(now() - begin);
        cpu.push(own_thread_cpu_time() - used);
        if named.unnamed.is_some() || named.groups.iter().count() != containers {
            return Err("some containers have no name".into());
        }
    }
    wall.sort_unstable();
    cpu.sort_unstable();
    let grown = own_peak_memory().saturating_sub(before) >> 10;
    println!("{containers} containers, {repetitions} repetitions");
    for (name, times) in [("elapsed", wall), ("CPU time", cpu)] {
        let (first, median, last) = (times[0], times[times.len() / 2], times[times.len() - 1]);
        println!("{name}: median {median}, from {first} to {last}");
    }
    println!("peak memory: {grown} KiB more than before");
    Ok(())
}

/// Writes a container's state, and returns the path of its cgroup.
fn write_container(root: &Path, number: usize) -> Result<String, Box<dyn Error>> {
    let id = format!("{number:064x}");
    let folder = root.join("var/lib/docker/containers").join(&id);
    fs::create_dir_all(&folder)?;
    let filler = "x".repeat(STATE_BYTES);
    let state = format!(
        r#"{{"ID":"{id}","Name":"/web-{number}","Config":{{"Image":"web","Env":["{filler}"]}}}}"#
    );
    fs::write(folder.join("config.v2.json"), state)?;
    Ok(format!("/system.slice/docker-{id}.scope"))
}
