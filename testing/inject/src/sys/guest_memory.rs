//! Memory of a virtual machine.

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::VmFd;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};

use crate::error::InjectError;

/// Memory that is mapped for the rest of the process's life, because the kernel may use it for as
/// long as the virtual machine exists.
#[derive(Debug)]
pub(crate) struct GuestMemory {
    base: NonNull<u8>,
    size: usize,
}

impl GuestMemory {
    /// Maps `size` bytes of zeros.
    pub(crate) fn new(size: usize) -> Result<Self, InjectError> {
        let failed = |errno| InjectError::system("map memory", errno, "free some memory");
        let length = NonZeroUsize::new(size).ok_or_else(|| failed(nix::Error::EINVAL))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice cannot alias Rust's memory.
        let base = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE) };
        Ok(Self {
            base: base.map_err(failed)?.cast(),
            size,
        })
    }

    /// Copies `bytes` to an address of the guest.
    ///
    /// # Panics
    /// Panics if the bytes do not fit into the memory.
    pub(crate) fn write(&mut self, address: usize, bytes: &[u8]) {
        let end = address.checked_add(bytes.len());
        assert!(
            end.is_some_and(|end| end <= self.size),
            "outside the memory"
        );
        // SAFETY: the address lies within the mapping (checked above).
        let to = unsafe { self.base.add(address) };
        // SAFETY: the mapping has room for the bytes, and `bytes` lies outside of it.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    /// Makes this the guest's memory from address 0 on.
    pub(crate) fn give_to(self, vm: &VmFd) -> Result<(), kvm_ioctls::Error> {
        let region = kvm_userspace_memory_region {
            slot: 0,
            flags: 0,
            guest_phys_addr: 0,
            memory_size: self.size as u64,
            userspace_addr: self.base.as_ptr() as u64,
        };
        // SAFETY: the mapping is never removed, and nothing in this process refers to it any more.
        unsafe { vm.set_user_memory_region(region) }
    }
}
