"""Reads BPF programs as compiled by the kernel, with the C line of each instruction."""

import bisect
import collections
import ctypes
import os
import struct

SYS_BPF = 321  # x86-64
PROG_GET_NEXT_ID, PROG_GET_FD_BY_ID, OBJ_GET_INFO_BY_FD, BTF_GET_FD_BY_ID = 11, 13, 15, 19

# `struct bpf_prog_info` from include/uapi/linux/bpf.h, up to the last field needed.
INFO = [
    ("type", "I"), ("id", "I"), ("tag", "8s"), ("jited_len", "I"), ("xlated_len", "I"), ("jited", "Q"),
    ("xlated", "Q"), ("load_time", "Q"), ("uid", "I"), ("nr_map_ids", "I"), ("map_ids", "Q"), ("name", "16s"),
    ("ifindex", "I"), ("flags", "I"), ("netns_dev", "Q"), ("netns_ino", "Q"), ("nr_jited_ksyms", "I"),
    ("nr_jited_func_lens", "I"), ("jited_ksyms", "Q"), ("jited_func_lens", "Q"), ("btf_id", "I"),
    ("func_info_rec_size", "I"), ("func_info", "Q"), ("nr_func_info", "I"), ("nr_line_info", "I"),
    ("line_info", "Q"), ("jited_line_info", "Q"), ("nr_jited_line_info", "I"), ("line_info_rec_size", "I"),
    ("jited_line_info_rec_size", "I"),
]
LAYOUT = "<" + "".join(sort for _, sort in INFO)

Line = collections.namedtuple("Line", "file number text")


def bpf(command, attributes):
    """Makes the system call. Returns its result and the attributes as updated by the kernel."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, max(len(attributes), 128))
    result = libc.syscall(SYS_BPF, command, buffer, len(attributes))
    return result, buffer.raw


def info_of(fd, **wanted):
    """Returns the kernel's information on a program. `wanted` holds sizes and addresses of buffers to fill."""
    empty = {name: b"" if "s" in sort else 0 for name, sort in INFO} | wanted
    record = struct.pack(LAYOUT, *(empty[name] for name, _ in INFO))
    buffer = ctypes.create_string_buffer(record, len(record))
    result, _ = bpf(OBJ_GET_INFO_BY_FD, struct.pack("<IIQ", fd, len(record), ctypes.addressof(buffer)))
    if result < 0:
        raise OSError(ctypes.get_errno(), "the kernel does not show a program's instructions: be root")
    return dict(zip((name for name, _ in INFO), struct.unpack(LAYOUT, buffer.raw)))


def descriptors(name):
    """Returns descriptors of all programs with this name, oldest first."""
    found, number = [], 0
    while True:
        result, attributes = bpf(PROG_GET_NEXT_ID, struct.pack("<III", number, 0, 0))
        if result:
            return found
        number = struct.unpack_from("<I", attributes, 4)[0]
        fd, _ = bpf(PROG_GET_FD_BY_ID, struct.pack("<III", number, 0, 0))
        if fd < 0:
            continue
        if info_of(fd)["name"].split(b"\0")[0] == name.encode()[:15]:
            found.append(fd)
        else:
            os.close(fd)


def strings_of(btf):
    """Returns the names and lines in a program's type information."""
    fd, _ = bpf(BTF_GET_FD_BY_ID, struct.pack("<III", btf, 0, 0))

    def ask(data, size):
        record = ctypes.create_string_buffer(struct.pack("<QII", data, size, 0) + bytes(24), 40)
        bpf(OBJ_GET_INFO_BY_FD, struct.pack("<IIQ", fd, 40, ctypes.addressof(record)))
        return struct.unpack_from("<I", record.raw, 8)[0]

    size = ask(0, 0)
    data = ctypes.create_string_buffer(size)
    ask(ctypes.addressof(data), size)
    header, _, _, at, length = struct.unpack_from("<IIIII", data.raw, 4)
    return data.raw[header + at : header + at + length]


class Jitted:
    """A compiled program with the functions that it calls."""

    def __init__(self, fd):
        sizes = info_of(fd)
        count = sizes["nr_jited_ksyms"]
        self.code = ctypes.create_string_buffer(sizes["jited_len"])
        lines = ctypes.create_string_buffer(sizes["nr_line_info"] * 16)
        addresses = ctypes.create_string_buffer(sizes["nr_jited_line_info"] * 8)
        begins = ctypes.create_string_buffer(count * 8)
        lengths = ctypes.create_string_buffer(count * 4)
        whole = info_of(
            fd,
            jited_len=sizes["jited_len"], jited=ctypes.addressof(self.code),
            nr_line_info=sizes["nr_line_info"], line_info=ctypes.addressof(lines), line_info_rec_size=16,
            nr_jited_line_info=sizes["nr_jited_line_info"], jited_line_info=ctypes.addressof(addresses),
            jited_line_info_rec_size=8, nr_jited_ksyms=count, jited_ksyms=ctypes.addressof(begins),
            nr_jited_func_lens=count, jited_func_lens=ctypes.addressof(lengths),
        )
        if not whole["jited"]:
            raise OSError("the kernel hides the instructions: set net.core.bpf_jit_harden to 0 and kernel.kptr_restrict below 2")
        self.functions, at = [], 0
        for begin, length in zip(struct.unpack(f"<{count}Q", begins.raw), struct.unpack(f"<{count}I", lengths.raw)):
            self.functions.append((begin, self.code.raw[at : at + length]))
            at += length
        self.entry = self.functions[0][0]
        strings = strings_of(whole["btf_id"])
        word = lambda at: strings[at : strings.index(b"\0", at)].decode()
        self.lines = []
        for number in range(whole["nr_line_info"]):
            _, file, text, place = struct.unpack_from("<IIII", lines.raw, number * 16)
            address = struct.unpack_from("<Q", addresses.raw, number * 8)[0]
            self.lines.append((address, Line(os.path.basename(word(file)), place >> 10, word(text).strip())))
        self.lines.sort(key=lambda it: it[0])
        self.addresses = [address for address, _ in self.lines]

    def is_own(self, address):
        return any(begin <= address < begin + len(code) for begin, code in self.functions)

    def line(self, address):
        """Returns the C line of the instruction at an address."""
        return self.lines[max(bisect.bisect_right(self.addresses, address) - 1, 0)][1]
