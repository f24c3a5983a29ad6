#!/usr/bin/env python3
"""Cuts real recordings down to seeds of a few KB: headers whole, few records, only the formats that matter.

    fuzz/cut_seeds.py          writes fuzz/seeds/{perf_data,perf_pipe,trace_dat,tracefs_text,xentrace}

A fuzzer spends its time on bytes, and most bytes of a recording are formats and samples that are like one another.
"""

import os
import re
import struct
import subprocess
import sys
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "../crates/traces/tests/fixtures")
EVENTS = {"kvm_exit", "kvm_entry", "kvm_pio", "kvm_mmio", "kvm_msr"}
SAMPLE, COMPRESSED, COMPRESSED2, TRACING_DATA = 9, 81, 83, 66
# Features in perf's numbering that a reader looks at: tracing data, host, release, version, architecture, processor,
# command, compression.
FEATURES = {1, 3, 4, 5, 6, 8, 11, 27}


def unpacked(path):
    return subprocess.run(["zstd", "-dcq", os.path.join(FIXTURES, path)], check=True, capture_output=True).stdout


def write(target, name, data):
    folder = os.path.join(HERE, "seeds", target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)
    print(f"{target}/{name}: {len(data)} bytes")


def short_format(text):
    """A format without the thousands of bytes that print its symbols."""
    return re.sub(rb"print fmt: .*", b'print fmt: "%d", REC->common_pid\n', text, flags=re.DOTALL)


def cut_tracing_data(data):
    """Only KVM's formats; no ftrace formats, symbols or printk texts."""
    at = data.index(b"header_event\0") + 13
    at += 8 + struct.unpack_from("<Q", data, at)[0]
    out = data[:at] + struct.pack("<I", 0)
    count, at = struct.unpack_from("<I", data, at)[0], at + 4
    for _ in range(count):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
    out += cut_formats(data, at)[0]
    return out + struct.pack("<II", 0, 0) + struct.pack("<Q", 0)


def records(data, at, end):
    while at + 8 <= end:
        kind, size = struct.unpack_from("<IxxH", data, at)
        payload = 0
        if kind == TRACING_DATA:
            payload = struct.unpack_from("<I", data, at + 8)[0]
        if size < 8 or at + size > end:
            return
        yield kind, data[at : at + size + payload]
        at += size + payload


def few(all_records, most, samples):
    """The first records of each kind; of samples, which are the point, some of each event."""
    seen, out = {}, b""
    all_records = list(all_records)
    packed = [(kind, record) for kind, record in all_records if kind == COMPRESSED]
    for kind, record in all_records:
        if kind == COMPRESSED:
            out, packed = out + (repacked(packed) if packed else b""), []
            continue
        # A sample begins with its event's number, where there is more than one event.
        key = (kind, record[8:16] if kind == SAMPLE else None)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= (samples if kind == SAMPLE else most):
            out += record
    return out


def repacked(packed):
    """Few records of those in a zstd stream, in one record of each kind that perf has for them."""
    stream = b"".join(record[8:] for _, record in packed)
    inner = subprocess.run(["zstd", "-dcq"], input=stream, capture_output=True).stdout
    few_of_them = few(records(inner, 0, len(inner)), 1, 6)
    once = subprocess.run(["zstd", "-cq"], input=few_of_them, check=True, capture_output=True).stdout
    plain = struct.pack("<IHH", COMPRESSED, 0, 8 + len(once)) + once
    padded = once + bytes(-len(once) % 8)
    second = struct.pack("<IHHQ", COMPRESSED2, 0, 16 + len(padded), len(once)) + padded
    return plain + second


def cut_file(data, most, samples):
    head = bytearray(data[:104])
    attr_size, attrs_at, attrs_length, data_at, data_length = struct.unpack_from("<5Q", data, 16)
    bits = int.from_bytes(head[72:104], "little")
    table = data_at + data_length
    sections = {}
    for feature in (bit for bit in range(256) if bits >> bit & 1):
        offset, length = struct.unpack_from("<QQ", data, table)
        table += 16
        if feature in FEATURES:
            section = data[offset : offset + length]
            sections[feature] = cut_tracing_data(section) if feature == 1 else section
    body = few(records(data, data_at, data_at + data_length), most, samples)
    attrs_end = attrs_at + attrs_length
    out = bytearray(data[:attrs_end])
    # The identifiers lie between the header and the attributes, wherever perf put them: all of it stays.
    out += data[attrs_end:data_at]
    struct.pack_into("<QQ", out, 40, data_at, len(body))
    out[72:104] = sum(1 << feature for feature in sections).to_bytes(32, "little")
    out += body
    at = len(out) + 16 * len(sections)
    for section in sections.values():
        out += struct.pack("<QQ", at, len(section))
        at += len(section)
    return bytes(out) + b"".join(sections.values())


def cut_pipe(data, most, samples):
    kept = []
    for kind, record in records(data, 16, len(data)):
        if kind == TRACING_DATA:
            size = struct.unpack_from("<H", record, 6)[0]
            section = cut_tracing_data(record[size:])
            section += bytes(-len(section) % 8)
            record = record[:8] + struct.pack("<I", len(section)) + record[12:size] + section
        kept.append((kind, record))
    return data[:16] + few(kept, most, samples)


def cut_formats(data, at):
    """Formats by system, cut; and where they end."""
    systems, at = struct.unpack_from("<I", data, at)[0], at + 4
    kept = []
    for _ in range(systems):
        end = data.index(b"\0", at)
        name, at = data[at:end], end + 1
        count, at = struct.unpack_from("<I", data, at)[0], at + 4
        formats = []
        for _ in range(count):
            size, at = struct.unpack_from("<Q", data, at)[0], at + 8
            text, at = data[at : at + size], at + size
            if re.match(rb"name: (\w+)", text).group(1).decode() in EVENTS:
                formats.append(short_format(text))
        if formats:
            kept.append((name, formats))
    out = struct.pack("<I", len(kept))
    for name, formats in kept:
        out += name + b"\0" + struct.pack("<I", len(formats))
        for text in formats:
            out += struct.pack("<Q", len(text)) + text
    return out, at


def inflated(data):
    if not data.startswith(b"\x28\xb5\x2f\xfd"):
        return zlib.decompress(data)
    return subprocess.run(["zstd", "-dcq"], input=data, check=True, capture_output=True).stdout


def cut_version6(data, pages):
    """trace.dat 6 without ftrace formats, symbols and printk texts (trace-cmd.dat.v6(5))."""
    at = data.index(b"header_event\0") + 13
    at += 8 + struct.unpack_from("<Q", data, at)[0]
    out = data[:at] + struct.pack("<I", 0)
    count, at = struct.unpack_from("<I", data, at)[0], at + 4
    for _ in range(count):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
    formats, at = cut_formats(data, at)
    for _ in range(2):
        at += 4 + struct.unpack_from("<I", data, at)[0]
    out += formats + struct.pack("<II", 0, 0)
    end = at + 8 + struct.unpack_from("<Q", data, at)[0] + 4
    count = struct.unpack_from("<I", data, end - 4)[0]
    assert data[end : end + 10] == b"options  \0"
    out, at, others = bytearray(out + data[at : end + 10]), end + 10, []
    while (option := struct.unpack_from("<H", data, at)[0]) != 0:
        size = 6 + struct.unpack_from("<I", data, at + 2)[0]
        if option == 3:
            others.append((len(out) + 6, struct.unpack_from("<Q", data, at + 6)[0]))
        out, at = out + data[at : at + size], at + size
    out += data[at : at + 2]
    append_buffer(out, data, at + 2, count, pages)
    for place, offset in others:
        struct.pack_into("<Q", out, place, len(out))
        append_buffer(out, data, offset, count, pages)
    return bytes(out)


def append_buffer(out, data, at, count, pages):
    assert data[at : at + 10] == b"flyrecord\0"
    processors = [struct.unpack_from("<QQ", data, at + 10 + 16 * processor) for processor in range(count)]
    out += data[at : at + 10]
    place = len(out) + 16 * count
    buffers = b""
    most = max(length for _, length in processors)
    for offset, length in processors:
        # One processor has a page, the others have none.
        length = pages * 4096 if length == most else 0
        out += struct.pack("<QQ", place + len(buffers), length)
        buffers += data[offset : offset + length]
    out += buffers


def cut_version7(data, pages):
    """trace.dat 7 without ftrace formats, symbols and printk texts (trace-cmd.dat.v7(5))."""
    compressed = b"none\0" not in data[:32]
    at = 10 + 2 + 6
    for _ in range(2):
        at = data.index(b"\0", at) + 1
    head, first = data[:at], struct.unpack_from("<Q", data, at)[0]
    at += 8
    sections = {}
    while at + 16 <= len(data):
        kind, flags, _, size = struct.unpack_from("<HHIQ", data, at)
        sections[at] = (kind, flags, data[at : at + 16], data[at + 16 : at + 16 + size])
        at += 16 + size
    out, places, patches = bytearray(head + bytes(8)), {}, [(len(head), first)]
    for offset, (kind, flags, header, body) in sections.items():
        if kind in (17, 19, 20, 22, 3):
            continue
        if kind == 18:
            if flags & 1:
                body, flags = inflated(body[8:]), 0
            body = cut_formats(body, 0)[0]
        places[offset] = len(out)
        if kind != 0:
            out += struct.pack("<HHI", kind, flags, 0) + struct.pack("<Q", len(body)) + body
            continue
        start, at = len(out), 0
        out += header
        while at + 6 <= len(body):
            option, size = struct.unpack_from("<HI", body, at)
            content, at = bytearray(body[at + 6 : at + 6 + size]), at + 6 + size
            if option in (17, 19, 20):
                continue
            content_at = len(out) + 6
            if option in (0, 16, 18, 21) and size == 8:
                patches.append((content_at, struct.unpack("<Q", content)[0]))
            if option == 3:
                patches.append((content_at, struct.unpack_from("<Q", content)[0]))
                names = content.index(b"\0", content.index(b"\0", 8) + 1) + 1
                count = struct.unpack_from("<I", content, names + 4)[0]
                for processor in range(count):
                    place = names + 8 + processor * 20 + 4
                    offset_of, length = struct.unpack_from("<QQ", content, place)
                    if not compressed:
                        struct.pack_into("<Q", content, place + 8, min(length, pages * 4096))
                        length = min(length, pages * 4096)
                    patches.append((content_at + place, ("data", offset_of, length)))
            out += struct.pack("<HI", option, size) + content
        struct.pack_into("<Q", out, start + 8, len(out) - start - 16)
    for place, old in patches:
        if isinstance(old, tuple):
            _, offset_of, length = old
            new = len(out)
            if compressed and length:
                # The first chunk: a count, then packed size, size and bytes of each.
                length = 12 + struct.unpack_from("<I", data, offset_of + 4)[0]
                out += struct.pack("<I", 1) + data[offset_of + 4 : offset_of + length]
                struct.pack_into("<Q", out, place + 8, length)
            else:
                out += data[offset_of : offset_of + length]
        elif old in sections and sections[old][0] == 3:
            kind, flags, header, _ = sections[old]
            new = places.setdefault(old, len(out))
            if new == len(out):
                out += header[:8] + struct.pack("<Q", 0)
        else:
            new = places.get(old, 0)
        struct.pack_into("<Q", out, place, new)
    return bytes(out)


def cut_windows(data, most, length):
    """The first whole records of the first windows of each processor (`struct t_rec`, xen/include/public/trace.h)."""
    out, at, seen = b"", 0, {}
    while at + 12 <= len(data):
        head, cpu, size = struct.unpack_from("<III", data, at)
        assert head == 0x2001F003, "windows tile the file"
        window, at = data[at + 12 : at + 12 + size], at + 12 + size
        seen[cpu] = seen.get(cpu, 0) + 1
        if seen[cpu] > most:
            continue
        end = 0
        while end + 4 <= len(window) and end < length:
            record = struct.unpack_from("<I", window, end)[0]
            end += 4 + 8 * (record >> 31) + 4 * (record >> 28 & 7)
        out += struct.pack("<III", head, cpu, end) + window[:end]
    return out


def main():
    for name in ["one-vcpu", "several-vms", "callchains", "statistics", "group-read", "losses", "exit-only"]:
        write("perf_data", name, cut_file(unpacked(f"perf/{name}.perf.data.zst"), 2, 6))
    zstd = unpacked("perf/zstd3.perf.data.zst")
    write("perf_data", "zstd", cut_file(zstd, 1, 6))
    killed = unpacked("perf/killed.perf.data.zst")
    start = struct.unpack_from("<Q", killed, 40)[0]
    write("perf_data", "killed", killed[:start] + few(records(killed, start, len(killed)), 1, 6))
    for name in ["pipe", "pipe-two-events", "killed-pipe"]:
        write("perf_pipe", name, cut_pipe(unpacked(f"perf/{name}.perf.data.zst"), 2, 6))
    write("perf_pipe", "zstd", cut_pipe(unpacked("perf/pipe-zstd.perf.data.zst"), 1, 6))
    for path in ["text/vmx.trace.txt", "text/vmx-apicv.trace.txt", "trace-cmd/latency.trace.txt"] + [
        f"trace-cmd/{name}.txt"
        for name in ["lost.script", "default.trace", "fields.trace", "overrun.trace", "tgid.trace", "losses.pipe"]
        + ["plain.report-t", "zstd.report-R", "zstd.report-l", "zstd.report-ts-diff", "period.script", "x86-tsc.trace"]
    ]:
        lines = unpacked(f"{path}.zst").splitlines(keepends=True)
        first = next(at for at, line in enumerate(lines) if b"kvm_exit" in line)
        comments = [line for line in lines[:first] if line.startswith((b"#", b"cpus="))]
        write("tracefs_text", path.split("/")[1][:-4], b"".join(comments + lines[first : first + 20]))
    write("trace_dat", "version-6", cut_version6(unpacked("trace-cmd/v6-instance.dat.zst"), 1))
    for name in ["plain", "tsc2nsec", "zlib-extract", "instances"]:
        write("trace_dat", name, cut_version7(unpacked(f"trace-cmd/{name}.dat.zst"), 1))
    for name in ["a-all", "c-hvm", "h-all", "h-boot", "qemu10-a-all"]:
        write("xentrace", name, cut_windows(unpacked(f"xentrace/{name}.trace.zst"), 2, 1000))


if __name__ == "__main__":
    sys.exit(main())
