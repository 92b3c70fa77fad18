//! Cases about whether an fsync makes data durable: file systems, disks, servers, and programs in
//! which fsync does nothing.

use ticktax_model::machine::Writeback;
use ticktax_model::recording::Header;
use ticktax_model::tick::TickBill;

use super::tree::Expected::{Found, Silence};
use super::tree::{Case, case};

const FSTAB: &str = "etc/fstab";
const MOUNTS: &str = "proc/mounts";
const WAITS: &str = "fsync-waits-for-others";
const OFF: &str = "fsync-turned-off";
const CACHE: &str = "disk-cache-not-flushed";
const EXPORT: &str = "nfs-export-async";
const SWAPS: &str = "nfs-writeback-swaps";

pub(crate) fn cases() -> Vec<Case> {
    let lists = [
        lost_writes(),
        waits(),
        programs(),
        disks(),
        exports(),
        swaps(),
    ];
    lists.into_iter().flatten().collect()
}

fn lost_writes() -> Vec<Case> {
    let nfs =
        |options: &str| format!("server:/home /home nfs4 {options},timeo=600,retrans=2 0 0\n");
    let ext = |options: &str| format!("/dev/sdb1 /data ext4 {options} 0 0\n");
    vec![
        case(
            "nfs-soft-mount",
            "written to, and given up",
            &[(FSTAB, &nfs("soft")), (MOUNTS, &nfs("rw,soft"))],
            Found("mounted soft (timeo=600,retrans=2)"),
        ),
        case(
            "nfs-soft-mount",
            "one that waits",
            &[(FSTAB, &nfs("soft")), (MOUNTS, &nfs("rw,hard"))],
            Silence,
        ),
        case(
            "nfs-soft-mount",
            "only read",
            &[(FSTAB, &nfs("ro,soft")), (MOUNTS, &nfs("ro,soft"))],
            Silence,
        ),
        case(
            "fsync-without-barrier",
            "an ext4 that trusts its disk",
            &[(FSTAB, &ext("nobarrier")), (MOUNTS, &ext("rw,nobarrier"))],
            Found("mounted with nobarrier"),
        ),
        case(
            "fsync-without-barrier",
            "listed in the file system's own folder of /proc",
            &[
                (FSTAB, &ext("barrier=0")),
                (MOUNTS, &ext("rw")),
                ("proc/fs/ext4/sdb1/options", "rw\nbarrier=0\n"),
            ],
            Found("mounted with barrier=0"),
        ),
        case(
            "fsync-without-barrier",
            "as usual",
            &[
                (FSTAB, &ext("defaults")),
                (MOUNTS, &ext("rw")),
                ("proc/fs/ext4/sdb1/options", "rw\nbarrier\n"),
            ],
            Silence,
        ),
        case(
            "nfs-soft-mount",
            "mounted by a program, without a line",
            &[(MOUNTS, &nfs("rw,soft"))],
            Found("not in /etc/fstab"),
        ),
        case(
            "fsync-without-barrier",
            "a view of a disk that a line is about",
            &[
                (FSTAB, &ext("nobarrier,noauto")),
                (
                    MOUNTS,
                    "/dev/sdb1 /data ext4 rw 0 0\n/dev/sdb1 /view ext4 rw,nobarrier 0 0\n",
                ),
            ],
            Silence,
        ),
    ]
}

fn waits() -> Vec<Case> {
    let mounted = |kind: &str, options: &str| format!("/dev/sdb1 /data {kind} {options} 0 0\n");
    vec![
        case(
            WAITS,
            "ext3 by today's driver, which tells it in its own folder",
            &[
                (FSTAB, &mounted("ext3", "defaults")),
                (MOUNTS, &mounted("ext3", "rw,relatime")),
                (
                    "proc/fs/ext4/sdb1/options",
                    "rw\nnodelalloc\nbarrier\ndata=ordered\n",
                ),
            ],
            Found("all data that programs wrote"),
        ),
        case(
            WAITS,
            "data in the journal, without a line",
            &[(MOUNTS, &mounted("ext4", "rw,data=journal"))],
            Found("data=journal"),
        ),
        case(
            WAITS,
            "a btrfs that keeps no log of trees",
            &[(MOUNTS, &mounted("btrfs", "rw,notreelog"))],
            Found("remount,treelog"),
        ),
        case(
            WAITS,
            "as usual, and one that is only read",
            &[
                (
                    MOUNTS,
                    "/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /old ext3 ro 0 0\n",
                ),
                ("proc/fs/ext4/sda1/options", "rw\ndelalloc\ndata=ordered\n"),
                (
                    "proc/fs/ext4/sdb1/options",
                    "ro\nnodelalloc\ndata=ordered\n",
                ),
            ],
            Silence,
        ),
        case(
            WAITS,
            "ext2 by the same driver: no journal to wait for",
            &[
                (MOUNTS, &mounted("ext2", "rw")),
                ("proc/fs/ext4/sdb1/options", "rw\nnodelalloc\n"),
            ],
            Silence,
        ),
    ]
}

fn programs() -> Vec<Case> {
    const ENVIRON: (&str, &str) = ("proc/77/environ", "A=b\0LD_PRELOAD=libeatmydata.so\0");
    vec![
        case(
            OFF,
            "a program with the library",
            &[
                ("proc/77/comm", "bonnie\n"),
                ENVIRON,
                (
                    "proc/77/maps",
                    "7f-8f r-xp 0 fe:01 7 /usr/lib/libeatmydata.so\n",
                ),
            ],
            Found("bonnie, process 77: LD_PRELOAD"),
        ),
        case(
            OFF,
            "a static program, which has the wish alone",
            &[
                ("proc/77/comm", "sh\n"),
                ENVIRON,
                ("proc/77/maps", "4-5 r-xp 0 fe:01 7 /bin/sh\n"),
            ],
            Silence,
        ),
        case(
            OFF,
            "a database",
            &[
                ("proc/78/comm", "postgres\n"),
                (
                    "proc/78/cmdline",
                    "/usr/bin/postgres\0-D\0/data\0-c\0fsync=off\0",
                ),
            ],
            Found("start postgres without -c fsync=off"),
        ),
        case(
            OFF,
            "all programs",
            &[("etc/ld.so.preload", "/usr/lib/libeatmydata.so\n")],
            Found("fsync does nothing in any program"),
        ),
        case(
            OFF,
            "another library",
            &[("etc/ld.so.preload", "/usr/lib/libjemalloc.so\n")],
            Silence,
        ),
        case(
            OFF,
            "an overlay that takes none",
            &[(
                MOUNTS,
                "overlay /run/x overlay rw,lowerdir=/a,upperdir=/b,volatile 0 0\n",
            )],
            Found("fsync on /run/x does nothing"),
        ),
        case(
            OFF,
            "the same by today's kernel",
            &[(
                MOUNTS,
                "overlay /run/y overlay rw,lowerdir=/a,upperdir=/b,fsync=volatile 0 0\n",
            )],
            Found("fsync on /run/y does nothing"),
        ),
    ]
}

fn disks() -> Vec<Case> {
    let disk = |kernel, own| {
        [
            ("sys/block/sda/queue/write_cache", kernel),
            ("sys/block/sda/device/scsi_disk/0:0:0:0/cache_type", own),
        ]
    };
    vec![
        case(
            CACHE,
            "a kernel with another setting",
            &disk("write through\n", "write back, no read (daft)\n"),
            Found("fsync on sda"),
        ),
        case(
            CACHE,
            "flushed",
            &disk("write back\n", "write back\n"),
            Silence,
        ),
        case(
            CACHE,
            "no cache",
            &disk("write through\n", "write through\n"),
            Silence,
        ),
        case(
            CACHE,
            "a disk that does not tell",
            &[("sys/block/vda/queue/write_cache", "write through\n")],
            Silence,
        ),
    ]
}

fn exports() -> Vec<Case> {
    const FILE: &str = "proc/fs/nfsd/exports";
    vec![
        case(
            EXPORT,
            "answered early",
            &[(
                FILE,
                "# Version 1.1\n# Path Client(Flags) # IPs\n/srv\t10.0.0.0/8(rw,async,wdelay)\n",
            )],
            Found("exported to 10.0.0.0/8 with rw,async,wdelay"),
        ),
        case(
            EXPORT,
            "answered when it is written, only read, and junk",
            &[(FILE, "/srv\t*(rw,sync)\n/a\t*(ro,async)\n/b\n\t(\n")],
            Silence,
        ),
    ]
}

fn swaps() -> Vec<Case> {
    const FILES: [(&str, &str); 2] = [
        (MOUNTS, "server:/home /home nfs4 rw,hard 0 0\n"),
        ("proc/sys/vm/dirty_ratio", "20\n"),
    ];
    /// Makes the machine's counters rise by `sent` MiB sent to NFS servers and by `swapped` MiB
    /// swapped out.
    fn grown(header: &mut Header, sent: Option<u64>, swapped: u64) -> Option<TickBill> {
        let at = |times: u64| Writeback {
            nfs_sent_bytes: sent.map(|sent| 5 + times * (sent << 20)),
            swapped_out_bytes: 9 + times * (swapped << 20),
            ..Writeback::default()
        };
        header.before.writeback = Some(at(0));
        header.after.writeback = Some(at(1));
        None
    }
    let with = |name, files: &[(&'static str, &str)], measured, expected| Case {
        measured,
        ..case(SWAPS, name, files, expected)
    };
    vec![
        with(
            "both at once",
            &FILES,
            |header| grown(header, Some(300), 40),
            Found("300 MiB were sent to NFS servers and 40 MiB"),
        ),
        with(
            "no swap",
            &FILES,
            |header| grown(header, Some(300), 0),
            Silence,
        ),
        with(
            "nothing sent",
            &FILES,
            |header| grown(header, Some(0), 40),
            Silence,
        ),
        with(
            "no server",
            &FILES[1..],
            |header| grown(header, None, 40),
            Silence,
        ),
    ]
}
