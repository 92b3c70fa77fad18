//! Finds the run queue that a thread is on.

use std::fs::File;
use std::os::unix::fs::FileExt;

use ticktax_model::Cpu;

use crate::Proc;
use crate::programs::words;

/// A thread's `stat` file. It stays open so that a reading takes only a few microseconds.
#[derive(Debug)]
pub struct ThreadPlace {
    tid: i32,
    stat: File,
}

impl Proc {
    /// Opens the `stat` file of thread `tid`. Returns `None` if the thread has exited.
    pub fn thread_place(&self, tid: i32) -> Option<ThreadPlace> {
        let stat = File::open(self.root.join(format!("proc/{tid}/task/{tid}/stat"))).ok()?;
        Some(ThreadPlace { tid, stat })
    }
}

impl ThreadPlace {
    /// Thread ID.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// Returns the CPU on which the thread is running or waiting. If the thread is asleep, this is
    /// the CPU that it last ran on. Returns `None` if the thread has exited.
    pub fn cpu(&self) -> Option<Cpu> {
        // The file has 52 numbers of up to 20 digits, and a name of up to 16 bytes.
        let mut text = [0; 1200];
        let read = self.stat.read_at(&mut text, 0).ok()?;
        let text = String::from_utf8_lossy(&text[..read]);
        words(&text)?.nth(36)?.parse().ok().map(Cpu)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ticktax_model::Cpu;

    use crate::Proc;

    #[test]
    fn the_cpu_is_read_again_each_time() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/7/task/7");
        fs::create_dir_all(&folder).unwrap();
        let set = |cpu: u32| {
            let zeros = "0 ".repeat(35);
            fs::write(folder.join("stat"), format!("7 (a b) R {zeros}{cpu} 0 0")).unwrap();
        };
        set(3);
        let proc = Proc::at(root.path());
        let place = proc.thread_place(7).unwrap();
        assert_eq!((place.tid(), place.cpu()), (7, Some(Cpu(3))));
        set(0);
        assert_eq!(place.cpu(), Some(Cpu(0)));
        assert!(proc.thread_place(8).is_none());
    }
}
