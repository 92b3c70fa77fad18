//! Reads how long threads waited, according to the scheduler's own counters.

use ticktax_model::Nanos;

use super::Proc;
use super::counters::user_hz;
use super::programs::is_kernel_thread;

/// Position of `delayacct_blkio_ticks` among the fields after the name in `/proc/PID/stat`.
const BLOCK_IO_FIELD: usize = 39;

/// A process, and the time that each of its living threads has spent waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessDelays {
    /// Process ID.
    pub pid: i32,
    /// Name of the program.
    pub program: String,
    /// Waiting times of each living thread.
    pub threads: Vec<ThreadDelay>,
}

/// Waiting times of a thread since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadDelay {
    /// Thread ID.
    pub tid: i32,
    /// Time that the thread was runnable but had to wait for a CPU.
    pub run_queue: Nanos,
    /// Time that the thread waited for disk I/O, or `None` if the kernel does not count it
    /// (`kernel.task_delayacct`).
    pub block_io: Option<Nanos>,
}

impl Proc {
    /// Returns the waiting times of all processes except kernel threads. Threads whose counters
    /// cannot be read are left out.
    pub fn process_delays(&self) -> Vec<ProcessDelays> {
        let counts_io = self.text("proc/sys/kernel/task_delayacct").as_deref() == Some("1");
        let process = |pid: i32| {
            let stat = self.text(&format!("proc/{pid}/stat"))?;
            if is_kernel_thread(&stat) {
                return None;
            }
            let threads = self.tasks(pid).into_iter();
            Some(ProcessDelays {
                pid,
                program: name(&stat)?.to_owned(),
                threads: threads
                    .filter_map(|tid| self.thread_delay(pid, tid, counts_io))
                    .collect(),
            })
        };
        self.processes().into_iter().filter_map(process).collect()
    }

    fn thread_delay(&self, pid: i32, tid: i32, counts_io: bool) -> Option<ThreadDelay> {
        let folder = format!("proc/{pid}/task/{tid}");
        let schedstat = self.text(&format!("{folder}/schedstat"))?;
        let run_queue = schedstat.split_ascii_whitespace().nth(1)?.parse().ok()?;
        let block_io = || {
            let stat = self.text(&format!("{folder}/stat"))?;
            let (_, fields) = stat.rsplit_once(')')?;
            let ticks = fields.split_ascii_whitespace().nth(BLOCK_IO_FIELD)?;
            let ticks: i64 = ticks.parse().ok()?;
            Some(Nanos(ticks.saturating_mul(1_000_000_000 / user_hz())))
        };
        Some(ThreadDelay {
            tid,
            run_queue: Nanos(run_queue),
            block_io: counts_io.then(block_io).flatten(),
        })
    }
}

/// Returns the name from the contents of `/proc/PID/stat`. The name can contain parentheses.
fn name(stat: &str) -> Option<&str> {
    let (_, name) = stat.split_once('(')?;
    Some(name.rsplit_once(')')?.0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ticktax_model::Nanos;

    use super::{ProcessDelays, ThreadDelay};
    use crate::Proc;

    /// Returns the contents of the `stat` file of a thread that has waited for disk I/O.
    fn stat(name: &str, flags: u32, block_io: u32) -> String {
        let mut words: Vec<String> = vec!["0".to_owned(); 50];
        words[0] = "S".to_owned();
        words[6] = flags.to_string();
        words[39] = block_io.to_string();
        format!("7 ({name}) {}\n", words.join(" "))
    }

    #[test]
    fn delays_are_read_per_thread() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let io = stat("a) (b", 0, 3);
        write("proc/7/stat", &io);
        write("proc/7/task/7/stat", &io);
        write("proc/7/task/7/schedstat", "100 25 9\n");
        write("proc/7/task/8/schedstat", "nonsense\n");
        write("proc/9/stat", &stat("kworker/0:1", 0x0020_0000, 0));
        let proc = Proc::at(root.path());
        let delays = |block_io| {
            vec![ProcessDelays {
                pid: 7,
                program: "a) (b".to_owned(),
                threads: vec![ThreadDelay {
                    tid: 7,
                    run_queue: Nanos(25),
                    block_io,
                }],
            }]
        };
        assert_eq!(proc.process_delays(), delays(None));
        write("proc/sys/kernel/task_delayacct", "1\n");
        let three = Nanos(3 * 1_000_000_000 / super::user_hz());
        assert_eq!(proc.process_delays(), delays(Some(three)));
    }
}
