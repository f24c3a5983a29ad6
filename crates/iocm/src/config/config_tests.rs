use super::*;
use crate::device::block::BlockOptions;
use crate::worker::DEFAULT_NAP_NS;

fn refused(text: &str) -> String {
    Config::parse(text).unwrap_err().to_string()
}

const DISK: &str = "[[device]]\nname = \"a\"\ntype = \"block\"\nsocket = \"/run/a\"\n";

#[test]
fn what_is_not_said_is_usual() {
    let config = Config::parse(DISK).unwrap();
    assert_eq!(config.workers.count, 1);
    assert_eq!(config.workers.polling(), Polling::Adaptive { nap_ns: DEFAULT_NAP_NS });
    assert_eq!(config.devices[0].block(), BlockOptions::default());
    assert_eq!(config.workers.worker(0).unwrap(), WorkerOptions::default());
}

#[test]
fn everything_can_be_said() {
    let text = "[workers]\narrangement = \"per-device\"\ncount = 3\ncpus = [\"2\", \"4-6,8\"]\npolling = \"always\"\n\
        longest-nap-us = 50\n[[device]]\nname = \"a\"\ntype = \"block\"\nsocket = \"/run/a\"\npath = \"/x\"\n\
        format = \"raw\"\nread-only = true\nshare-rw = true\ndirect = true\nblock-size = 4096\nserial = \"s\"\nqueues = 4\nrequests-per-second = 5\nbytes-per-second = 6\n";
    let config = Config::parse(text).unwrap();
    assert_eq!(config.workers.arrangement, Arrangement::PerDevice);
    assert_eq!(config.workers.worker(1).unwrap().cpus.to_string(), "4-6,8");
    assert_eq!(config.workers.polling(), Polling::Always);
    let block = config.devices[0].block();
    assert!(block.read_only && block.direct && block.raw && block.share_rw);
    assert!(config.text().unwrap().contains("format = \"raw\"\n"));
    assert_eq!(
        (block.queues, block.requests_a_second, block.bytes_a_second, block.block_size),
        (4, 5, 6, 4096)
    );
}

#[test]
fn a_value_that_cannot_be_is_refused_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    std::fs::write(&path, "[workers]\nlongest-nap-us = 0\n").unwrap();
    let refused = Config::read(&path).unwrap_err().to_string();
    assert!(refused.starts_with(path.to_str().unwrap()) && refused.contains("longest-nap-us"), "{refused}");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    assert!(refused("[workers]\ncount = 0").contains("count = 0"));
    for nap in ["0", "1000001", "9000000000000000000"] {
        assert!(refused(&format!("[workers]\nlongest-nap-us = {nap}")).contains(&format!("{nap} us")));
    }
    assert!(refused("[workers]\ncpus = [\"2\", \"3\"]").contains("count = 1"));
    assert!(refused("[workers]\ncpus = [\"3-1\"]").contains("`3-1`"));
    assert!(refused("[workers]\ncpus = [\"99999\"]").contains("`99999`"));
    assert!(refused("[workers]\nspeed = 1").contains("line 2"), "{}", refused("[workers]\nspeed = 1"));
    assert!(refused(&format!("{DISK}{DISK}")).contains("called a"));
    assert!(refused(&format!("{DISK}{}", DISK.replace("\"a\"", "\"b\""))).contains("/run/a"));
    assert!(refused(&format!("{DISK}queues = 0")).contains("0 queues"));
    assert!(refused(&format!("{DISK}block-size = 8192")).contains("block-size = 8192"));
    assert!(refused(&format!("{DISK}serial = \"123456789012345678901\"")).contains("20 bytes"));
    assert!(refused(&format!("{DISK}path = \"/x\"\nnull-size-bytes = 1")).contains("null-size-bytes"));
    assert!(refused(&format!("{DISK}path = \"/x\"\nformat = \"qcow2\"")).contains("qcow2"));
    assert!(refused(&format!("{}format = \"raw\"", DISK.replace("block", "net"))).contains("leave out"));
    assert!(refused(&DISK.replace("block", "tape")).contains("tape"));
    let tap = |name: &str, numbers: &str| {
        let device = DISK.replace("\"a\"", &format!("{name:?}")).replace("/run/a", &format!("/run/{name}"));
        format!("{}backend = {{ tap-fds = {numbers} }}\n", device.replace("block", "net"))
    };
    assert!(refused(&(tap("a", "[3]") + &tap("b", "[4, 3]"))).contains("tap-fds has 3 twice"));
}

#[test]
fn cpu_lists_are_sets_of_the_cpus_that_a_host_can_have() {
    let set = |text: &str| cpu_list(text).unwrap().to_string();
    assert_eq!(set("0-3,6,8-9"), "0-3,6,8-9");
    assert_eq!(set("5, 1,0,1"), "0-1,5");
    assert_eq!(cpu_list("0-4095,4096-8191").unwrap().count(), 8192);
    assert_eq!(set("0-8191,3"), "0-8191");
    // A line of the control socket has room for 9000 of these ranges. CPU by CPU they would take half a gigabyte.
    assert_eq!(set(&["0-8191"; 9000].join(",")), "0-8191");
    for wrong in ["", " ", "3-1", "1,", "8192", "0-4294967295"] {
        let error = cpu_list(wrong).unwrap_err().to_string();
        assert_eq!(error, format!("`{wrong}` is not a list of CPUs such as 2 or 4-7,10"));
    }
}
