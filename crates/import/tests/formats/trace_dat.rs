//! trace.dat files.

use ticktax_model::limitation::ImportLimit;

use crate::{EXAMPLE, Example, Kernel, check_example, open_bytes};

/// Writes numbers in a byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    pub(crate) fn bytes(self, size: usize, value: u64) -> Vec<u8> {
        match self {
            Self::Little => value.to_le_bytes()[..size].to_vec(),
            Self::Big => value.to_be_bytes()[8 - size..].to_vec(),
        }
    }

    /// Returns a block of bytes behind its length.
    fn block(self, size: usize, bytes: &[u8]) -> Vec<u8> {
        [&self.bytes(size, bytes.len() as u64), bytes].concat()
    }
}

/// Size of a page. Each CPU's events fit into one.
const PAGE: usize = 4_096;

/// Fields that all events have.
const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                      \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

/// Name, id and own fields of each event.
const FORMATS: &[(&str, u64, &str)] = &[
    (
        "sched_switch",
        1,
        "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
         \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
         \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
         \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\
         \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n",
    ),
    (
        "sched_waking",
        2,
        "\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
         \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n",
    ),
    (
        "irq_handler_entry",
        3,
        "\tfield:int irq;\toffset:8;\tsize:4;\tsigned:1;\n\
         \tfield:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;\n",
    ),
    ("irq_handler_exit", 4, ""),
    (
        "softirq_entry",
        5,
        "\tfield:unsigned int vec;\toffset:8;\tsize:4;\tsigned:0;\n",
    ),
    ("softirq_exit", 6, ""),
];

/// Returns an event as the kernel stores it.
pub(crate) fn encode(example: &Example, order: Order) -> Vec<u8> {
    let number = |size, value| order.bytes(size, value);
    let pid = |pid: i32| number(4, u64::from(pid.cast_unsigned()));
    let comm = |name: &str| {
        let mut comm = name.as_bytes().to_vec();
        comm.resize(16, 0);
        comm
    };
    let (id, fields): (u64, Vec<u8>) = match example.event {
        Kernel::Switch {
            prev,
            state,
            next,
            next_pid,
        } => {
            let parts = [
                comm(prev),
                pid(example.pid),
                vec![0; 4],
                number(8, state.into()),
                comm(next),
                pid(next_pid),
            ];
            (1, parts.concat())
        }
        Kernel::Waking { name, pid: woken } => (2, [comm(name), pid(woken)].concat()),
        Kernel::IrqEntry(name) => {
            let length = name.len() as u64 + 1;
            let place = number(4, 16 | length << 16);
            let parts = [number(4, 9), place, name.as_bytes().to_vec(), vec![0]];
            (3, parts.concat())
        }
        Kernel::IrqExit => (4, Vec::new()),
        Kernel::SoftirqEntry(vec) => (5, number(4, vec.into())),
        Kernel::SoftirqExit(_) => (6, Vec::new()),
    };
    let mut event = [number(2, id), vec![0; 2], pid(example.pid), fields].concat();
    event.resize(event.len().next_multiple_of(4), 0);
    event
}

fn format(name: &str, id: u64, fields: &str) -> Vec<u8> {
    format!("name: {name}\nID: {id}\nformat:\n{COMMON}{fields}\nprint fmt: \"\"\n").into_bytes()
}

fn header_info(order: Order) -> Vec<u8> {
    let page = b"\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                 \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n";
    [
        b"header_page\0".to_vec(),
        order.block(8, page),
        b"header_event\0".to_vec(),
        order.block(8, b"type_len: 5 bits\n"),
    ]
    .concat()
}

fn event_formats(order: Order) -> Vec<u8> {
    let mut formats = [order.bytes(4, 1), b"all\0".to_vec()].concat();
    formats.extend(order.bytes(4, FORMATS.len() as u64));
    for (name, id, fields) in FORMATS {
        formats.extend(order.block(8, &format(name, *id, fields)));
    }
    formats
}

fn begin(version: &str, order: Order) -> Vec<u8> {
    let mut file = b"\x17\x08\x44tracing".to_vec();
    file.extend(version.as_bytes());
    file.push(0);
    file.push(u8::from(order == Order::Big));
    file.push(8);
    file.extend(order.bytes(4, PAGE as u64));
    file
}

/// Returns the description of the events up to the formats of messages, as in a file of version 6
/// and in perf.data.
pub(crate) fn descriptions(version: &str, order: Order) -> Vec<u8> {
    [
        begin(version, order),
        header_info(order),
        order.bytes(4, 0),
        event_formats(order),
        order.block(4, b""),
        order.block(4, b""),
    ]
    .concat()
}

/// Returns a page of the ring buffer with the example's events on a CPU.
fn page(cpu: u32, order: Order) -> Vec<u8> {
    let mut events = Vec::new();
    let mut time = 0;
    for example in EXAMPLE.iter().filter(|example| example.cpu == cpu) {
        let event = encode(example, order);
        let (words, delta) = (event.len() as u64 / 4, example.at_us * 1_000 - time);
        time = example.at_us * 1_000;
        let header = match order {
            Order::Little => words | delta << 5,
            Order::Big => words << 27 | delta,
        };
        events.extend(order.bytes(4, header));
        events.extend(event);
    }
    let mut page = [
        order.bytes(8, 0),
        order.bytes(8, events.len() as u64),
        events,
    ]
    .concat();
    assert!(page.len() < PAGE);
    page.resize(PAGE, 0);
    page
}

fn version_6_in(order: Order) -> Vec<u8> {
    let mut file = descriptions("6", order);
    file.extend(order.block(8, b"10 game\n11 work\n"));
    file.extend(order.bytes(4, 2));
    file.extend(b"options  \0");
    file.extend(order.bytes(2, 5));
    file.extend(order.block(4, b"Linux board 6.1.0 #1 SMP armv7l\0"));
    file.extend(order.bytes(2, 0));
    file.extend(b"flyrecord\0");
    let data = (file.len() + 32).next_multiple_of(PAGE);
    for cpu in 0..2 {
        file.extend(order.bytes(8, (data + cpu * PAGE) as u64));
        file.extend(order.bytes(8, PAGE as u64));
    }
    file.resize(data, 0);
    file.extend(page(0, order));
    file.extend(page(1, order));
    file
}

pub(crate) fn version_6() -> Vec<u8> {
    version_6_in(Order::Little)
}

/// Compresses with zlib or, if `zstd`, with zstd.
fn compress(bytes: &[u8], zstd: bool) -> Vec<u8> {
    if zstd {
        return zstd::bulk::compress(bytes, 1).expect("data of any kind can be compressed");
    }
    miniz_oxide::deflate::compress_to_vec_zlib(bytes, 6)
}

fn section(id: u64, zstd: bool, contents: &[u8]) -> Vec<u8> {
    let order = Order::Little;
    let packed = compress(contents, zstd);
    let body = [
        order.bytes(4, packed.len() as u64),
        order.bytes(4, contents.len() as u64),
        packed,
    ]
    .concat();
    section_header(id, &body)
}

fn section_header(id: u64, body: &[u8]) -> Vec<u8> {
    let order = Order::Little;
    let flags = 1;
    [
        order.bytes(2, id),
        order.bytes(2, flags),
        order.bytes(4, 0),
        order.block(8, body),
    ]
    .concat()
}

fn version_7_with(zstd: bool) -> Vec<u8> {
    let order = Order::Little;
    let mut file = begin("7", order);
    file.extend(b"zlib\x001\0");
    let place_of_options = file.len();
    file.extend(order.bytes(8, 0));
    let mut options = Vec::new();
    for (id, contents) in [(16, header_info(order)), (18, event_formats(order))] {
        options.extend(order.bytes(2, id));
        options.extend(order.block(4, &order.bytes(8, file.len() as u64)));
        file.extend(section(id, zstd, &contents));
    }
    let place = file.len() as u64;
    let mut buffer = [
        order.bytes(8, place),
        b"\0local\0".to_vec(),
        order.bytes(4, 2),
    ]
    .concat();
    file.extend(section_header(3, b""));
    for cpu in 0..2 {
        let packed = compress(&page(cpu, order), zstd);
        let data = [
            order.bytes(4, 1),
            order.bytes(4, packed.len() as u64),
            order.bytes(4, PAGE as u64),
            packed,
        ]
        .concat();
        buffer.extend(order.bytes(4, cpu.into()));
        buffer.extend(order.bytes(8, file.len() as u64));
        buffer.extend(order.bytes(8, data.len() as u64));
        file.extend(data);
    }
    options.extend(order.bytes(2, 3));
    options.extend(order.block(4, &buffer));
    options.extend(order.bytes(2, 0));
    options.extend(order.block(4, &order.bytes(8, 0)));
    let place = order.bytes(8, file.len() as u64);
    file[place_of_options..place_of_options + 8].copy_from_slice(&place);
    file.extend(section(0, zstd, &options));
    file
}

pub(crate) fn version_7() -> Vec<u8> {
    version_7_with(false)
}

#[test]
fn version_6_is_read_in_both_byte_orders() {
    for order in [Order::Little, Order::Big] {
        let opened = open_bytes(&version_6_in(order)).unwrap();
        check_example(&opened);
        let machine = &opened.header.machine;
        let names = (&*machine.host, &*machine.kernel, &*machine.arch);
        assert_eq!(names, ("board", "6.1.0", "armv7l"));
        let local = ImportLimit::LocalClock {
            clock: "local".to_owned(),
        };
        assert!(opened.limits().contains(&&local));
    }
}

#[test]
fn version_7_is_read_with_either_compression() {
    for zstd in [false, true] {
        check_example(&open_bytes(&version_7_with(zstd)).unwrap());
    }
}

#[test]
fn events_lost_between_pages_are_reported() {
    let mut file = version_6();
    let data = file.len() - 2 * PAGE;
    // The flag for missed events, in the `commit` field of CPU 0's only page.
    file[data + 8 + 3] |= 0x80;
    let opened = open_bytes(&file).unwrap();
    assert_eq!(opened.header.coverage.events_lost(), 1);
}

#[test]
fn other_versions_are_refused() {
    let mut file = version_6();
    file[10] = b'9';
    let error = open_bytes(&file).err().unwrap().to_string();
    assert!(error.contains("it has version 9"), "{error}");
}
