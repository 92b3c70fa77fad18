//! Objects that the kernel holds, and the time of a walk over each kind of them.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use ticktax_model::Nanos;
use ticktax_model::kernel_walk::KernelList;
use ticktax_model::mem::{
    LatencyPoint, MemLatency, MemObjects, ObjectGroup, ObjectLimitation, ObjectSource, WalkTime,
};

use crate::btf::Btf;
use crate::walk::{at, fetched, lines};

/// A list of objects that the kernel counts for every user.
struct List {
    objects: KernelList,
    source: ObjectSource,
    structure: &'static str,
    /// Fields that a loop over the list touches: the link to the next object, and some state.
    /// Kernels that lack a field are assumed not to touch it.
    fields: &'static [&'static str],
}

const LISTS: [List; 3] = [
    List {
        objects: KernelList::Inodes,
        source: ObjectSource::InodeState,
        structure: "inode",
        fields: &["i_sb_list.next", "i_state", "i_mapping"],
    },
    List {
        objects: KernelList::Dentries,
        source: ObjectSource::DentryState,
        structure: "dentry",
        fields: &["d_lru.next", "d_flags", "d_lockref"],
    },
    List {
        objects: KernelList::Threads,
        source: ObjectSource::Loadavg,
        structure: "task_struct",
        fields: &["thread_node.next", "__state", "flags"],
    },
];

/// Reads the kernel's objects below `root`, and predicts a walk over each kind from measured
/// latencies. `types` describe the kernel's structures. The result is sorted by the time of the
/// walk, longest first.
pub fn objects(
    root: &Path,
    types: Option<&Btf>,
    measured: &MemLatency,
    budget: Option<Nanos>,
) -> MemObjects {
    let mut limitations = Vec::new();
    if types.is_none() {
        limitations.push(ObjectLimitation::NoTypes);
    }
    let mut groups = Vec::new();
    for list in &LISTS {
        match fs::read_to_string(root.join(list.objects.file())) {
            Ok(text) => groups.extend(list.group(&text, types, measured)),
            Err(_) => limitations.push(ObjectLimitation::NoCount {
                source: list.source,
            }),
        }
    }
    match fs::read_to_string(root.join("proc/slabinfo")) {
        Ok(text) => {
            let caches = slabs(&text);
            groups.extend(caches.map(|slab| slab.group(measured)));
        }
        Err(error) => limitations.push(no_slabinfo(error.kind())),
    }
    groups.sort_by(|a, b| b.walk.median.cmp(&a.walk.median).then(a.name.cmp(&b.name)));
    MemObjects {
        cpu: measured.cpu,
        line_bytes: measured.line_bytes,
        groups,
        budget,
        limitations,
    }
}

fn no_slabinfo(kind: ErrorKind) -> ObjectLimitation {
    match kind {
        ErrorKind::PermissionDenied => ObjectLimitation::SlabinfoNeedsRoot,
        _ => ObjectLimitation::NoSlabinfo,
    }
}

impl List {
    fn group(&self, text: &str, types: Option<&Btf>, measured: &MemLatency) -> Option<ObjectGroup> {
        let objects = self.objects.count(text)?;
        let mut size = None;
        let mut fields = Vec::new();
        if let Some((types, structure)) =
            types.and_then(|types| Some((types, types.structure(self.structure).ok()?)))
        {
            size = Some(structure.size);
            let found = self.fields.iter().filter_map(|&path| {
                let field = types.field(&structure, path).ok()?;
                Some((path.to_owned(), field.offset))
            });
            fields.extend(found);
        }
        // Without types, a walk touches at least the link to the next object.
        let offsets: Vec<u64> = fields.iter().map(|field| field.1).collect();
        let touched = if offsets.is_empty() { vec![0] } else { offsets };
        Some(ObjectGroup {
            name: self.objects.name().to_owned(),
            source: self.source,
            objects,
            size_bytes: size,
            fields: fields.into_iter().map(|field| field.0).collect(),
            walk: walk_time(&touched, objects, size, measured),
            every_line: size.map(|size| every_line(size, objects, measured)),
        })
    }
}

/// A cache of the kernel's allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slab {
    name: String,
    objects: u64,
    size: u64,
}

impl Slab {
    fn group(self, measured: &MemLatency) -> ObjectGroup {
        ObjectGroup {
            walk: walk_time(&[0], self.objects, Some(self.size), measured),
            every_line: Some(every_line(self.size, self.objects, measured)),
            name: self.name,
            source: ObjectSource::Slabinfo,
            objects: self.objects,
            size_bytes: Some(self.size),
            fields: Vec::new(),
        }
    }
}

/// Parses `/proc/slabinfo`. Leaves out caches without objects, and lines that are not caches.
fn slabs(text: &str) -> impl Iterator<Item = Slab> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next().filter(|name| !name.starts_with('#'))?;
        let objects = words.next()?.parse().ok().filter(|&objects| objects > 0)?;
        let size = words.nth(1)?.parse().ok().filter(|&size| size > 0)?;
        Some(Slab {
            name: name.to_owned(),
            objects,
            size,
        })
    })
}

/// Predicts a walk that touches every line of each object, in the order of addresses.
fn every_line(size: u64, objects: u64, measured: &MemLatency) -> WalkTime {
    const MOST: u64 = 1 << 16;
    let line = measured.line_bytes.max(1);
    let all = size.div_ceil(line).clamp(1, MOST);
    let offsets: Vec<u64> = (0..all).map(|number| number * line).collect();
    walk_time(&offsets, objects, Some(size), measured)
}

/// Predicts a walk over objects in a random order, in which each load waits for the one before.
fn walk_time(offsets: &[u64], objects: u64, size: Option<u64>, measured: &MemLatency) -> WalkTime {
    let line = measured.line_bytes.max(1);
    let counts = lines(offsets, line, measured.prefetch);
    // Several small objects share a line, or a pair of lines.
    let fetched = fetched(offsets, line, measured.prefetch);
    let each = size
        .filter(|&size| size < line)
        .map_or(fetched, |size| size.min(fetched));
    let working_set_bytes = objects.saturating_mul(each);
    let nearest = measured.points.first();
    let point = at(&measured.points, working_set_bytes);
    let total = |load: fn(&LatencyPoint) -> f64| {
        let (Some(point), Some(nearest)) = (point, nearest) else {
            return Nanos(0);
        };
        let miss = load(point);
        let item = (counts.all - counts.along) as f64 * miss
            + counts.along as f64 * point.next_line_ns.min(miss)
            + counts.again as f64 * load(nearest);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a float beyond the range becomes the largest time"
        )]
        Nanos((item * objects as f64).round() as i64)
    };
    WalkTime {
        lines: counts.all,
        working_set_bytes,
        median: total(LatencyPoint::latency_ns),
        min: total(|point| point.huge.unwrap_or(point.small).min_ns),
        p90: total(|point| point.huge.unwrap_or(point.small).p90_ns),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::path::Path;

    use ticktax_model::Nanos;
    use ticktax_model::mem::{MemLatency, ObjectLimitation, ObjectSource};

    use super::{no_slabinfo, objects, slabs};
    use crate::btf::layout;
    use crate::walk::tests::besplex;

    const SLABINFO: &str = "slabinfo - version: 2.1\n\
        # name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tun\n\
        empty                  0      0    312   13    1 : tunables    0    0    0\n\
        small_cache         1000   1050     64   64    1 : tunables    0    0    0\n\
        big_cache          50000  50400   1024   16    4 : tunables    0    0    0\n\
        damaged            50000\n";

    fn machine(slabinfo: Option<&str>) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/sys/fs/inode-state", "64000\t12\t0\t0\t0\t0\t0\n");
        write("proc/sys/fs/dentry-state", "2000\t1000\t45\t0\t500\t0\n");
        write("proc/loadavg", "0.20 0.10 0.05 2/117 4213\n");
        if let Some(text) = slabinfo {
            write("proc/slabinfo", text);
        }
        root
    }

    fn types() -> crate::btf::Btf {
        // The three fields lie in three lines; the first two share an aligned pair of lines.
        let text = "struct list { void *next, *prev; };
            struct inode { u32 i_state @ 0x40; struct list i_sb_list @ 0x80;
                void *i_mapping @ 0xc0; } size 600;";
        layout::parse(text).unwrap()
    }

    fn found(root: &Path, latencies: &MemLatency) -> ticktax_model::mem::MemObjects {
        objects(root, Some(&types()), latencies, Some(Nanos::from_millis(5)))
    }

    #[test]
    fn walks_are_sorted_by_their_predicted_time() {
        let root = machine(Some(SLABINFO));
        let found = found(root.path(), &besplex());
        let names: Vec<&str> = found.groups.iter().map(|group| &*group.name).collect();
        assert_eq!(
            names,
            ["inodes", "big_cache", "dentries", "small_cache", "threads"]
        );
        let inodes = &found.groups[0];
        assert_eq!(inodes.fields, ["i_sb_list.next", "i_state", "i_mapping"]);
        assert_eq!((inodes.walk.lines, inodes.size_bytes), (3, Some(600)));
        // The lines are touched in the order 2, 1, 3, so no line follows its pair.
        let expected = 64_000.0 * 3.0 * 42.4;
        assert!((inodes.walk.median.0 as f64 - expected).abs() < 1.0);
        let big = &found.groups[1];
        assert_eq!(big.source, ObjectSource::Slabinfo);
        assert_eq!(
            (big.walk.lines, big.walk.median),
            (1, Nanos(50_000 * 42_400 / 1000))
        );
        // 16 lines in pairs: 8 from memory, and 8 that come along for 5 ns.
        let every = big.every_line.unwrap();
        assert_eq!(
            (every.lines, every.median),
            (16, Nanos(50_000 * 379_200 / 1000))
        );
        // 1000 lines fit in the smallest measured working set.
        let small = found.groups[3].walk;
        assert_eq!(
            (small.working_set_bytes, small.median),
            (64_000, Nanos(1361))
        );
        assert!(found.limitations.is_empty());
        let exceeding: Vec<&str> = found.exceeding().map(|group| &*group.name).collect();
        assert_eq!(exceeding, ["inodes"]);
    }

    #[test]
    fn the_range_follows_the_spread_of_the_latency() {
        let root = machine(Some(SLABINFO));
        let mut latencies = besplex();
        for point in &mut latencies.points {
            point.small.min_ns = point.small.median_ns / 2.0;
            point.small.p90_ns = point.small.median_ns * 2.0;
        }
        let walk = found(root.path(), &latencies).groups[1].walk;
        assert_eq!(
            (walk.min.0 * 2, walk.p90.0),
            (walk.median.0, walk.median.0 * 2)
        );
    }

    #[test]
    fn counts_remain_without_slabinfo_and_types() {
        let root = machine(None);
        let found = objects(root.path(), None, &besplex(), None);
        assert_eq!(found.groups.len(), 3);
        for group in &found.groups {
            assert_eq!((group.walk.lines, group.size_bytes), (1, None));
            assert!(group.every_line.is_none() && group.fields.is_empty());
        }
        assert_eq!(
            found.limitations,
            [ObjectLimitation::NoTypes, ObjectLimitation::NoSlabinfo]
        );
        let denied = no_slabinfo(ErrorKind::PermissionDenied);
        assert_eq!(denied, ObjectLimitation::SlabinfoNeedsRoot);
        let nothing = objects(Path::new("/nonexistent"), None, &besplex(), None);
        assert!(nothing.groups.is_empty());
        assert_eq!(nothing.limitations.len(), 5);
    }

    #[test]
    fn damaged_counts_are_left_out() {
        assert_eq!(slabs(SLABINFO).count(), 2);
        assert_eq!(slabs("a b c d\nx 1 2 99999999999999999999\n\0").count(), 0);
    }
}
