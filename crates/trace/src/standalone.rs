//! Loads the small BPF objects that are independent of the tracer.
//!
//! Their programs are attached to raw tracepoints. They report through a ring buffer, and count what
//! did not fit into it.

use aya::maps::{Array, MapData, RingBuf};
use aya::programs::RawTracePoint;
use aya::{Btf, Ebpf, EbpfLoader, VerifierLogLevel};

use crate::error::TraceError;

/// Description of an object.
pub(crate) struct Object {
    /// The compiled programs.
    pub(crate) code: &'static [u8],
    /// Names of the programs, in the order in which they are attached. Each is that of its
    /// tracepoint.
    pub(crate) programs: &'static [&'static str],
    /// Programs that are tried if another cannot be attached: a tracepoint, and its replacement.
    pub(crate) replacements: &'static [(&'static str, &'static str)],
    /// Name of the ring buffer.
    pub(crate) events: &'static str,
    /// Name of the array that counts what did not fit into the buffers.
    pub(crate) lost: &'static str,
    /// Size of the object's buffers in bytes. It is shown in error messages.
    pub(crate) bytes: u64,
}

/// An object whose programs are attached until this is dropped.
pub(crate) struct Attached {
    programs: Ebpf,
    events: RingBuf<MapData>,
    lost: &'static str,
}

impl Object {
    /// Loads the object and attaches its programs. `constants` sets constants of the object.
    pub(crate) fn attach(
        &self,
        types: &Btf,
        constants: &[(&'static str, u32)],
    ) -> Result<Attached, TraceError> {
        let refused =
            |error: &(dyn std::error::Error + 'static)| TraceError::from_loading(error, self.bytes);
        let missing = |name: &str| TraceError::Refused {
            why: format!("{name} is missing from the BPF object"),
        };
        let mut loader = EbpfLoader::new();
        loader
            .btf(Some(types))
            .verifier_log_level(VerifierLogLevel::DISABLE);
        for (name, value) in constants {
            loader.override_global(name, value, true);
        }
        let mut programs = loader.load(self.code).map_err(|error| refused(&error))?;
        for name in self.programs {
            let mut attach = |program: &str| -> Result<(), TraceError> {
                let program = programs
                    .program_mut(program)
                    .ok_or_else(|| missing(program))?;
                let program: &mut RawTracePoint =
                    program.try_into().map_err(|error| refused(&error))?;
                program.load().map_err(|error| refused(&error))?;
                program.attach(name).map_err(|error| refused(&error))?;
                Ok(())
            };
            let attached = attach(name);
            let replacement = self.replacements.iter().find(|(first, _)| first == name);
            match replacement {
                Some((_, second)) if attached.is_err() => attach(second)?,
                _ => attached?,
            }
        }
        let events = programs.take_map(self.events);
        let events = events.ok_or_else(|| missing(self.events))?;
        let events = RingBuf::try_from(events).map_err(|error| refused(&error))?;
        Ok(Attached {
            programs,
            events,
            lost: self.lost,
        })
    }
}

impl Attached {
    /// Returns the events since the last call that `decode` understands, in order.
    pub(crate) fn take<T>(&mut self, decode: impl Fn(&[u8]) -> Option<T>) -> Vec<T> {
        let mut events = Vec::new();
        while let Some(item) = self.events.next() {
            events.extend(decode(&item));
        }
        events
    }

    /// Returns entry `index` of the array that counts what did not fit.
    pub(crate) fn lost(&self, index: u32) -> u64 {
        let map = self.programs.map(self.lost);
        let map = map.and_then(|map| Array::<&MapData, u64>::try_from(map).ok());
        map.and_then(|map| map.get(&index, 0).ok()).unwrap_or(0)
    }
}
