//! The kernel's names of its reasons to drop a packet, which have other numbers in every version: the members of
//! `enum skb_drop_reason` in its description of its types (BTF, `Documentation/bpf/btf.rst`).
//!
//! aya reads that description as well, and keeps it to itself. btf-rs, which does not, is under the LGPL, and ticktax is
//! linked statically; the other crates know no `BTF_KIND_ENUM64`.

use std::collections::BTreeMap;

const MAGIC: u16 = 0xeb9f;
const ENUM: &str = "skb_drop_reason";
/// What members begin with.
const PREFIX: &str = "SKB_DROP_REASON_";

/// `BTF_KIND_ENUM`.
const KIND_ENUM: u32 = 6;

/// Names by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reasons(BTreeMap<u32, String>);

impl Reasons {
    /// Those of a kernel; `None` where its description has none, or is none.
    pub(super) fn read(btf: &[u8]) -> Option<Self> {
        let sections = Sections::of(btf)?;
        let mut types = sections.types;
        while !types.is_empty() {
            let [name, info, _] = [word(types, 0)?, word(types, 4)?, word(types, 8)?];
            let (kind, members) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let length = length(kind, members)?;
            let rest = types.get(12..12 + length)?;
            if kind == KIND_ENUM && sections.string(name) == Some(ENUM) {
                let members = rest.chunks_exact(8).filter_map(|member| {
                    let name = sections.string(word(member, 0)?)?;
                    Some((word(member, 4)?, name.strip_prefix(PREFIX)?.to_owned()))
                });
                return Some(Self(members.collect()));
            }
            types = types.get(12 + length..)?;
        }
        None
    }

    /// The name of a reason. A subsystem's own are in no enum of the kernel's core.
    pub(super) fn name(&self, reason: u32) -> String {
        if let Some(name) = self.0.get(&reason) {
            return name.clone();
        }
        match (reason >> 16, reason & 0xffff) {
            (0, reason) => format!("reason {reason}"),
            (subsystem, reason) => format!("reason {reason} of subsystem {subsystem}"),
        }
    }
}

/// The two parts of a description.
struct Sections<'a> {
    types: &'a [u8],
    strings: &'a [u8],
}

impl<'a> Sections<'a> {
    fn of(btf: &'a [u8]) -> Option<Self> {
        let magic = u16::from_ne_bytes(btf.get(..2)?.try_into().ok()?);
        let header = word(btf, 4)?;
        let part = |offset: usize| {
            let from = header.checked_add(word(btf, offset)?)?;
            let to = from.checked_add(word(btf, offset + 4)?)?;
            btf.get(from as usize..to as usize)
        };
        (magic == MAGIC).then_some(())?;
        Some(Self {
            types: part(8)?,
            strings: part(16)?,
        })
    }

    fn string(&self, offset: u32) -> Option<&'a str> {
        let text = self.strings.get(offset as usize..)?;
        let end = text.iter().position(|&byte| byte == 0)?;
        std::str::from_utf8(&text[..end]).ok()
    }
}

/// Bytes behind the three words that each type begins with; `None` of a kind that is not known.
fn length(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // INT, VAR, DECL_TAG
        1 | 14 | 17 => 4,
        // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
        2 | 7..=12 | 16 | 18 => 0,
        // ARRAY
        3 => 12,
        // STRUCT, UNION, DATASEC, ENUM64
        4 | 5 | 15 | 19 => 12 * members,
        // ENUM, FUNC_PROTO
        KIND_ENUM | 13 => 8 * members,
        _ => return None,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{KIND_ENUM, MAGIC, Reasons};

    /// A description with a struct of one member before an enum of these names and values.
    fn btf(name: &str, members: &[(&str, u32)]) -> Vec<u8> {
        let mut strings = vec![0];
        let mut string = |text: &str| {
            let at = u32::try_from(strings.len()).unwrap();
            strings.extend(text.bytes().chain([0]));
            at
        };
        let count = u32::try_from(members.len()).unwrap();
        let mut words = vec![string("sk_buff"), 4 << 24 | 1, 8, string("head"), 1, 0];
        words.extend([string(name), KIND_ENUM << 24 | count, 4]);
        for (name, value) in members {
            words.extend([string(name), *value]);
        }
        let types: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut all = MAGIC.to_ne_bytes().to_vec();
        all.extend([1, 0]);
        let (types_len, strings_len) = (types.len(), strings.len());
        for word in [24, 0, types_len, types_len, strings_len] {
            all.extend(u32::try_from(word).unwrap().to_ne_bytes());
        }
        all.extend(types);
        all.extend(strings);
        all
    }

    #[test]
    fn reasons_have_the_names_of_their_members() {
        let members = [
            ("SKB_NOT_DROPPED_YET", 0),
            ("SKB_DROP_REASON_NOT_SPECIFIED", 2),
            ("SKB_DROP_REASON_SOCKET_RCVBUFF", 6),
        ];
        let reasons = Reasons::read(&btf("skb_drop_reason", &members)).unwrap();
        assert_eq!(reasons.name(6), "SOCKET_RCVBUFF");
        assert_eq!(reasons.name(0), "reason 0");
        assert_eq!(reasons.name(0x0003_0001), "reason 1 of subsystem 3");
        assert_eq!(Reasons::read(&btf("another", &members)), None);
    }

    #[test]
    fn what_is_cut_off_or_no_description_has_none() {
        let whole = btf("skb_drop_reason", &[("SKB_DROP_REASON_NO_SOCKET", 3)]);
        assert!(Reasons::read(&whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(Reasons::read(&whole[..end]), None, "{end}");
        }
        let mut strange = whole.clone();
        strange[24 + 7] = 0x1f;
        assert_eq!(Reasons::read(&strange), None);
    }

    #[test]
    fn this_kernel_has_some() {
        let Ok(btf) = fs::read("/sys/kernel/btf/vmlinux") else {
            return;
        };
        // Since 5.17, with this one from the beginning.
        let member = b"SKB_DROP_REASON_NO_SOCKET\0";
        if btf.windows(member.len()).any(|bytes| bytes == member) {
            let reasons = Reasons::read(&btf).unwrap();
            assert!(reasons.0.values().any(|name| name == "NO_SOCKET"));
        }
    }
}
