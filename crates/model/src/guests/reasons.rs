//! Names of the reasons why a vCPU leaves the guest. They are those of `perf kvm stat` and of the
//! kernel's traces.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A set of exit reasons. Each kind of processor has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExitSet {
    /// Intel processors (VMX).
    Vmx,
    /// AMD processors (SVM).
    Svm,
    /// Exception classes of arm64 processors.
    Arm64,
    /// An x86 processor whose virtualization extension is unknown.
    Unknown,
}

impl ExitSet {
    /// Code of all exits whose reason the tracer does not distinguish.
    pub const OTHER: u32 = u32::MAX;

    /// Returns the name of the reason with this code, or `None` if the code is unknown.
    pub fn name(self, code: u32) -> Option<&'static str> {
        let table = match self {
            Self::Vmx => VMX,
            Self::Svm => SVM,
            Self::Arm64 => ARM64,
            Self::Unknown => &[],
        };
        let index = table.binary_search_by_key(&code, |&(code, _)| code).ok()?;
        Some(table[index].1)
    }

    /// Returns the name of the reason with this code, or a text that contains the code.
    pub fn named(self, code: u32) -> String {
        match (self.name(code), code) {
            (Some(name), _) => name.to_owned(),
            (None, Self::OTHER) => "other".to_owned(),
            (None, code) => format!("{code:#x}"),
        }
    }

    /// Returns whether the code is that of a halt: the guest has nothing to do until the next
    /// interrupt.
    pub const fn is_halt(self, code: u32) -> bool {
        match self {
            Self::Vmx => code == 12,
            Self::Svm => matches!(code, 0x78 | 0xa6),
            Self::Arm64 => code == 1,
            Self::Unknown => false,
        }
    }
}

/// From `VMX_EXIT_REASONS` in the kernel's `arch/x86/include/uapi/asm/vmx.h`.
const VMX: &[(u32, &str)] = &[
    (0, "EXCEPTION_NMI"),
    (1, "EXTERNAL_INTERRUPT"),
    (2, "TRIPLE_FAULT"),
    (3, "INIT_SIGNAL"),
    (4, "SIPI_SIGNAL"),
    (7, "INTERRUPT_WINDOW"),
    (8, "NMI_WINDOW"),
    (9, "TASK_SWITCH"),
    (10, "CPUID"),
    (12, "HLT"),
    (13, "INVD"),
    (14, "INVLPG"),
    (15, "RDPMC"),
    (16, "RDTSC"),
    (18, "VMCALL"),
    (19, "VMCLEAR"),
    (20, "VMLAUNCH"),
    (21, "VMPTRLD"),
    (22, "VMPTRST"),
    (23, "VMREAD"),
    (24, "VMRESUME"),
    (25, "VMWRITE"),
    (26, "VMOFF"),
    (27, "VMON"),
    (28, "CR_ACCESS"),
    (29, "DR_ACCESS"),
    (30, "IO_INSTRUCTION"),
    (31, "MSR_READ"),
    (32, "MSR_WRITE"),
    (33, "INVALID_STATE"),
    (34, "MSR_LOAD_FAIL"),
    (36, "MWAIT_INSTRUCTION"),
    (37, "MONITOR_TRAP_FLAG"),
    (39, "MONITOR_INSTRUCTION"),
    (40, "PAUSE_INSTRUCTION"),
    (41, "MCE_DURING_VMENTRY"),
    (43, "TPR_BELOW_THRESHOLD"),
    (44, "APIC_ACCESS"),
    (45, "EOI_INDUCED"),
    (46, "GDTR_IDTR"),
    (47, "LDTR_TR"),
    (48, "EPT_VIOLATION"),
    (49, "EPT_MISCONFIG"),
    (50, "INVEPT"),
    (51, "RDTSCP"),
    (52, "PREEMPTION_TIMER"),
    (53, "INVVPID"),
    (54, "WBINVD"),
    (55, "XSETBV"),
    (56, "APIC_WRITE"),
    (57, "RDRAND"),
    (58, "INVPCID"),
    (59, "VMFUNC"),
    (60, "ENCLS"),
    (61, "RDSEED"),
    (62, "PML_FULL"),
    (63, "XSAVES"),
    (64, "XRSTORS"),
    (67, "UMWAIT"),
    (68, "TPAUSE"),
    (74, "BUS_LOCK"),
    (75, "NOTIFY"),
    (76, "SEAMCALL"),
    (77, "TDCALL"),
];

/// From `SVM_EXIT_REASONS` in the kernel's `arch/x86/include/uapi/asm/svm.h`.
const SVM: &[(u32, &str)] = &[
    (0x0, "read_cr0"),
    (0x2, "read_cr2"),
    (0x3, "read_cr3"),
    (0x4, "read_cr4"),
    (0x8, "read_cr8"),
    (0x10, "write_cr0"),
    (0x12, "write_cr2"),
    (0x13, "write_cr3"),
    (0x14, "write_cr4"),
    (0x18, "write_cr8"),
    (0x20, "read_dr0"),
    (0x21, "read_dr1"),
    (0x22, "read_dr2"),
    (0x23, "read_dr3"),
    (0x24, "read_dr4"),
    (0x25, "read_dr5"),
    (0x26, "read_dr6"),
    (0x27, "read_dr7"),
    (0x30, "write_dr0"),
    (0x31, "write_dr1"),
    (0x32, "write_dr2"),
    (0x33, "write_dr3"),
    (0x34, "write_dr4"),
    (0x35, "write_dr5"),
    (0x36, "write_dr6"),
    (0x37, "write_dr7"),
    (0x40, "DE excp"),
    (0x41, "DB excp"),
    (0x43, "BP excp"),
    (0x44, "OF excp"),
    (0x45, "BR excp"),
    (0x46, "UD excp"),
    (0x47, "NM excp"),
    (0x48, "DF excp"),
    (0x4a, "TS excp"),
    (0x4b, "NP excp"),
    (0x4c, "SS excp"),
    (0x4d, "GP excp"),
    (0x4e, "PF excp"),
    (0x50, "MF excp"),
    (0x51, "AC excp"),
    (0x52, "MC excp"),
    (0x53, "XF excp"),
    (0x60, "interrupt"),
    (0x61, "nmi"),
    (0x62, "smi"),
    (0x63, "init"),
    (0x64, "vintr"),
    (0x65, "cr0_sel_write"),
    (0x66, "read_idtr"),
    (0x67, "read_gdtr"),
    (0x68, "read_ldtr"),
    (0x69, "read_rt"),
    (0x6a, "write_idtr"),
    (0x6b, "write_gdtr"),
    (0x6c, "write_ldtr"),
    (0x6d, "write_rt"),
    (0x6e, "rdtsc"),
    (0x6f, "rdpmc"),
    (0x70, "pushf"),
    (0x71, "popf"),
    (0x72, "cpuid"),
    (0x73, "rsm"),
    (0x74, "iret"),
    (0x75, "swint"),
    (0x76, "invd"),
    (0x77, "pause"),
    (0x78, "hlt"),
    (0x79, "invlpg"),
    (0x7a, "invlpga"),
    (0x7b, "io"),
    (0x7c, "msr"),
    (0x7d, "task_switch"),
    (0x7e, "ferr_freeze"),
    (0x7f, "shutdown"),
    (0x80, "vmrun"),
    (0x81, "hypercall"),
    (0x82, "vmload"),
    (0x83, "vmsave"),
    (0x84, "stgi"),
    (0x85, "clgi"),
    (0x86, "skinit"),
    (0x87, "rdtscp"),
    (0x88, "icebp"),
    (0x89, "wbinvd"),
    (0x8a, "monitor"),
    (0x8b, "mwait"),
    (0x8d, "xsetbv"),
    (0x8f, "write_efer_trap"),
    (0x90, "write_cr0_trap"),
    (0x94, "write_cr4_trap"),
    (0x98, "write_cr8_trap"),
    (0xa2, "invpcid"),
    (0xa5, "buslock"),
    (0xa6, "idle-halt"),
    (0x400, "npf"),
    (0x401, "avic_incomplete_ipi"),
    (0x402, "avic_unaccelerated_access"),
    (0x403, "vmgexit"),
];

/// Exception classes from `ESR_ELx_EC_*` in the kernel's `arch/arm64/include/asm/esr.h`. From 64
/// on, exits without a trap, from `kvm_arm_exception_type` in `asm/kvm_asm.h`.
const ARM64: &[(u32, &str)] = &[
    (0x0, "UNKNOWN"),
    (0x1, "WFx"),
    (0x3, "CP15_32"),
    (0x4, "CP15_64"),
    (0x5, "CP14_MR"),
    (0x6, "CP14_LS"),
    (0x7, "FP_ASIMD"),
    (0x8, "CP10_ID"),
    (0x9, "PAC"),
    (0xc, "CP14_64"),
    (0xd, "BTI"),
    (0xe, "ILL"),
    (0x11, "SVC32"),
    (0x12, "HVC32"),
    (0x13, "SMC32"),
    (0x15, "SVC64"),
    (0x16, "HVC64"),
    (0x17, "SMC64"),
    (0x18, "SYS64"),
    (0x19, "SVE"),
    (0x1a, "ERET"),
    (0x1c, "FPAC"),
    (0x1d, "SME"),
    (0x1f, "IMP_DEF"),
    (0x20, "IABT_LOW"),
    (0x21, "IABT_CUR"),
    (0x22, "PC_ALIGN"),
    (0x24, "DABT_LOW"),
    (0x25, "DABT_CUR"),
    (0x26, "SP_ALIGN"),
    (0x27, "MOPS"),
    (0x28, "FP_EXC32"),
    (0x2c, "FP_EXC64"),
    (0x2f, "SERROR"),
    (0x30, "BREAKPT_LOW"),
    (0x31, "BREAKPT_CUR"),
    (0x32, "SOFTSTP_LOW"),
    (0x33, "SOFTSTP_CUR"),
    (0x34, "WATCHPT_LOW"),
    (0x35, "WATCHPT_CUR"),
    (0x38, "BKPT32"),
    (0x3a, "VECTOR32"),
    (0x3c, "BRK64"),
    (0x40, "IRQ"),
    (0x41, "SERROR"),
    (0x43, "IL"),
];

#[cfg(test)]
mod tests {
    use super::{ARM64, ExitSet, SVM, VMX};

    #[test]
    fn tables_are_sorted_and_have_no_code_twice() {
        for table in [VMX, SVM, ARM64] {
            assert!(table.is_sorted_by(|a, b| a.0 < b.0));
        }
    }

    #[test]
    fn reasons_have_the_kernels_names() {
        assert_eq!(ExitSet::Svm.name(0x7b), Some("io"));
        assert_eq!(ExitSet::Svm.name(0x400), Some("npf"));
        assert_eq!(ExitSet::Vmx.name(48), Some("EPT_VIOLATION"));
        assert_eq!(ExitSet::Vmx.name(30), Some("IO_INSTRUCTION"));
        assert_eq!(ExitSet::Vmx.name(74), Some("BUS_LOCK"));
        assert_eq!(ExitSet::Arm64.name(0x24), Some("DABT_LOW"));
        assert_eq!(ExitSet::Vmx.named(5), "0x5");
        assert_eq!(ExitSet::Unknown.named(0x78), "0x78");
        assert_eq!(ExitSet::Svm.named(ExitSet::OTHER), "other");
    }

    #[test]
    fn halts_have_the_names_of_halts() {
        let named = |set: ExitSet| -> Vec<_> {
            let codes = (0..0x500).filter(|&code| set.is_halt(code));
            codes.filter_map(|code| set.name(code)).collect()
        };
        assert_eq!(named(ExitSet::Svm), ["hlt", "idle-halt"]);
        assert_eq!(named(ExitSet::Vmx), ["HLT"]);
        assert_eq!(named(ExitSet::Arm64), ["WFx"]);
        assert!(named(ExitSet::Unknown).is_empty());
    }
}
