//! Memory whose first use blocks until the memory is dropped.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::victims::{Memory, failed};

/// `UFFDIO_API` and `UFFDIO_REGISTER` in `<linux/userfaultfd.h>`.
const API: libc::Ioctl = libc::_IOWR::<Api>(0xaa, 0x3f);
const REGISTER: libc::Ioctl = libc::_IOWR::<Register>(0xaa, 0x00);
/// `UFFD_API`.
const VERSION: u64 = 0xaa;
/// `UFFDIO_REGISTER_MODE_MISSING`.
const MISSING: u64 = 1;

/// `struct uffdio_api`
#[repr(C)]
struct Api {
    version: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`
#[repr(C)]
struct Register {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

/// One page that a `userfaultfd` handles, which never provides it. A thread that uses the page
/// blocks in a page fault until the file descriptor is closed.
#[derive(Debug)]
pub struct Absent {
    memory: Memory,
    _faults: OwnedFd,
}

impl Absent {
    /// Maps the page. Without `CAP_SYS_PTRACE`, the kernel may refuse this.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes only flags.
        let file = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        let file = i32::try_from(file).ok().filter(|file| *file >= 0);
        let file = file.ok_or_else(|| failed("userfaultfd"))?;
        // SAFETY: the kernel has just opened this file descriptor, and nothing else owns it.
        let faults = unsafe { OwnedFd::from_raw_fd(file) };
        let mut api = Api {
            version: VERSION,
            features: 0,
            ioctls: 0,
        };
        // SAFETY: the kernel reads and writes the structure, which is valid.
        if unsafe { libc::ioctl(faults.as_raw_fd(), API, &raw mut api) } != 0 {
            return Err(failed("UFFDIO_API"));
        }
        let memory = Memory::new(4_096)?;
        let mut register = Register {
            start: memory.address() as u64,
            length: 4_096,
            mode: MISSING,
            ioctls: 0,
        };
        // SAFETY: the kernel reads and writes the structure, which is valid.
        if unsafe { libc::ioctl(faults.as_raw_fd(), REGISTER, &raw mut register) } != 0 {
            return Err(failed("UFFDIO_REGISTER"));
        }
        Ok(Self {
            memory,
            _faults: faults,
        })
    }

    /// Blocks in user mode.
    pub fn touch(&mut self) {
        self.memory.touch();
    }

    /// Writes the page to `file`. The system call blocks when it reads the page and holds the
    /// file's lock until then.
    pub fn write_to(&self, file: &File) -> io::Result<()> {
        let page = self.memory.address() as *const libc::c_void;
        // SAFETY: the mapping has this many bytes.
        match unsafe { libc::write(file.as_raw_fd(), page, 4_096) } {
            -1 => Err(failed("write")),
            _ => Ok(()),
        }
    }
}
