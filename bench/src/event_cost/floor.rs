//! The floor: BPF programs that just read the clock. They are attached to the hooks that the kernel
//! passes when it switches between threads. No tracer that takes timestamps at these hooks can cost
//! less.

use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf};
use object::write::{Object, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};

/// BPF instructions for `call bpf_ktime_get_ns; r0 = 0; exit` (linux/bpf.h: `struct bpf_insn`).
const READ_CLOCK: [[u8; 8]; 3] = [
    [0x85, 0, 0, 0, 5, 0, 0, 0],
    [0xb7, 0, 0, 0, 0, 0, 0, 0],
    [0x95, 0, 0, 0, 0, 0, 0, 0],
];

/// The attached programs. Dropping this detaches them.
pub(super) struct Floor {
    _programs: Ebpf,
}

impl Floor {
    /// Attaches a program that just reads the clock to each of `hooks`, the same way ticktax
    /// attaches its own programs.
    pub(super) fn attach(hooks: &[&str]) -> Result<Self, String> {
        let no = |error: &dyn std::fmt::Display| format!("no empty program: {error}");
        let btf = Btf::from_sys_fs().map_err(|error| no(&error))?;
        let object = object(hooks).map_err(|error| no(&error))?;
        let mut programs = Ebpf::load(&object).map_err(|error| no(&error))?;
        for hook in hooks {
            let program = programs.program_mut(hook).ok_or_else(|| no(hook))?;
            let program: &mut BtfTracePoint = program.try_into().map_err(|error| no(&error))?;
            program.load(hook, &btf).map_err(|error| no(&error))?;
            program.attach().map_err(|error| no(&error))?;
        }
        Ok(Self {
            _programs: programs,
        })
    }
}

/// Creates an ELF object file with one program per hook. Each program is named after its hook.
fn object(hooks: &[&str]) -> Result<Vec<u8>, object::write::Error> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let code = READ_CLOCK.concat();
    for hook in hooks {
        let name = format!("tp_btf/{hook}").into_bytes();
        let section = object.add_section(Vec::new(), name, SectionKind::Text);
        object.append_section_data(section, &code, 8);
        object.add_symbol(Symbol {
            name: hook.as_bytes().to_vec(),
            value: 0,
            size: code.len() as u64,
            kind: SymbolKind::Text,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::None,
        });
    }
    object.write()
}

#[cfg(test)]
mod tests {
    use aya::Ebpf;

    use super::object;

    #[test]
    fn the_object_has_a_program_for_each_hook() {
        let hooks = ["sched_switch", "sched_waking"];
        let object = object(&hooks).expect("it can be written");
        let programs = Ebpf::load(&object).expect("it is an object");
        let mut names: Vec<&str> = programs.programs().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert_eq!(names, hooks);
    }
}
