//! Memory for measurements of its latency, and the loops that load from it.

use std::ptr::NonNull;

use nix::errno::Errno;

/// Size of a huge page on x86-64, and on arm64 with 4 KiB pages.
const HUGE: usize = 2 << 20;

/// Kind of pages that a mapping asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Pages reserved in `vm.nr_hugepages`.
    Hugetlb,
    /// Ordinary memory that the kernel should back with huge pages.
    Transparent,
    /// Ordinary memory that the kernel must not back with huge pages.
    Small,
}

/// Private memory, filled with zeros. It is unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
    /// Offset of the first usable byte, which lies at the start of a huge page.
    offset: usize,
}

// SAFETY: the mapping owns its memory, so another thread may use and unmap it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps at least `bytes` bytes and touches every page.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error, for example if there is too little memory or no huge page is
    /// reserved.
    pub fn new(bytes: usize, request: Request) -> Result<Self, Errno> {
        let bytes = bytes.max(1).checked_next_multiple_of(HUGE);
        let length = bytes.and_then(|bytes| bytes.checked_add(HUGE));
        let length = length.ok_or(Errno::ENOMEM)?;
        let extra = match request {
            Request::Hugetlb => libc::MAP_HUGETLB,
            Request::Transparent | Request::Small => libc::MAP_NORESERVE,
        };
        // SAFETY: a new private mapping without an address affects no existing memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | extra,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::ENOMEM)?;
        let offset = start.as_ptr().align_offset(HUGE);
        let mut mapping = Self {
            start,
            length,
            offset,
        };
        let advice = match request {
            Request::Hugetlb => None,
            Request::Transparent => Some(libc::MADV_HUGEPAGE),
            Request::Small => Some(libc::MADV_NOHUGEPAGE),
        };
        if let Some(advice) = advice {
            // The kernel may lack huge pages. The caller checks which pages the memory got.
            // SAFETY: the advice concerns exactly this mapping and keeps its contents.
            let _ = unsafe { libc::madvise(start.as_ptr().cast(), length, advice) };
        }
        for page in mapping.bytes().chunks_mut(4096) {
            page[0] = 1;
            page[0] = 0;
            std::hint::black_box(&mut *page);
        }
        Ok(mapping)
    }

    /// Returns the usable bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        let length = self.size();
        // SAFETY: `offset` is at most HUGE, and the mapping is longer than that.
        let start = unsafe { self.start.as_ptr().add(self.offset) };
        // SAFETY: the range lies within the mapping, is initialised with zeros by the kernel, and
        // is borrowed mutably along with `self`.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }

    /// Returns the number of usable bytes.
    pub fn size(&self) -> usize {
        self.length - HUGE
    }

    /// Returns the address of the first usable byte.
    pub fn address(&self) -> usize {
        self.start.as_ptr() as usize + self.offset
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was created with this address and length, and no borrow outlives it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A cycle of pointers in a mapping, and the current position on it.
#[derive(Debug)]
pub struct Ring<'a> {
    at: *const usize,
    /// Keeps the memory mapped, and prevents changes to the pointers in it.
    _memory: &'a Mapping,
}

impl<'a> Ring<'a> {
    /// Writes a cycle of pointers that visits these offsets in this order and then starts again.
    /// Returns `None` if the list is empty, or if an offset lies outside the memory or is not a
    /// multiple of 8.
    pub fn write(memory: &'a mut Mapping, offsets: &[u64]) -> Option<Self> {
        let base = memory.address();
        let bytes = memory.bytes();
        let first = *offsets.first()?;
        let nexts = offsets.iter().skip(1).chain([&first]);
        for (&offset, &next) in offsets.iter().zip(nexts) {
            let (offset, next) = (usize::try_from(offset).ok()?, usize::try_from(next).ok()?);
            let aligned = offset.is_multiple_of(8) && next.is_multiple_of(8);
            if !aligned || next.checked_add(8)? > bytes.len() {
                return None;
            }
            let word = bytes.get_mut(offset..offset.checked_add(8)?)?;
            word.copy_from_slice(&((base + next) as u64).to_ne_bytes());
        }
        let at = (base + usize::try_from(first).ok()?) as *const usize;
        Some(Self {
            at,
            _memory: memory,
        })
    }

    /// Follows `16 × rounds` pointers. Each load needs the result of the one before it.
    pub fn follow(&mut self, rounds: u64) {
        let mut at = self.at;
        for _ in 0..rounds {
            macro_rules! steps {
                ($($step:literal)*) => {
                    $(
                        let _ = $step;
                        // SAFETY: `write` stored the address of an aligned word in the same
                        // mapping in each word that the cycle visits, starting with `at`.
                        at = unsafe { at.read_volatile() } as *const usize;
                    )*
                };
            }
            steps!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
        }
        self.at = at;
    }
}

/// A cycle of objects in a mapping. The address of the next object depends on a load; the loads
/// from the rest of the object do not depend on one another.
#[derive(Debug)]
pub struct Objects<'a> {
    ring: Ring<'a>,
    /// Distance of each further word from the one that holds the address of the next object.
    distances: Vec<isize>,
}

impl<'a> Objects<'a> {
    /// Writes a cycle of pointers that visits these offsets in this order. Returns `None` if the
    /// list is empty, or if a word lies outside the memory or is not aligned to 8 bytes.
    pub fn write(memory: &'a mut Mapping, offsets: &[u64], distances: &[i64]) -> Option<Self> {
        let length = memory.size() as u64;
        for distance in distances {
            let fits = |offset: &u64| {
                let word = offset.checked_add_signed(*distance);
                word.is_some_and(|word| word.is_multiple_of(8) && word < length)
            };
            if !offsets.iter().all(fits) {
                return None;
            }
        }
        let distances: Result<Vec<isize>, _> = distances.iter().map(|&d| d.try_into()).collect();
        Some(Self {
            ring: Ring::write(memory, offsets)?,
            distances: distances.ok()?,
        })
    }

    /// Visits this many objects.
    pub fn follow(&mut self, objects: u64) {
        let mut at = self.ring.at;
        for _ in 0..objects {
            for &distance in &self.distances {
                let word = at.wrapping_byte_offset(distance);
                // SAFETY: `write` checked that there is an aligned word of the same mapping at this
                // distance from each word of the cycle.
                let _ = unsafe { word.read_volatile() };
            }
            // SAFETY: `Ring::write` stored the address of the next word of the cycle here.
            at = unsafe { at.read_volatile() } as *const usize;
        }
        self.ring.at = at;
    }
}
