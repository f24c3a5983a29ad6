//! Recordings of other tools, written as our own, give the same profile again.

use std::fs;
use std::path::{Path, PathBuf};

use exits::Profile;
use traces::exitless::{Header, Summary, Writer};
use traces::{Error, Format, Options, Reading, Source};

/// Recordings of all kinds.
fn fixtures() -> Vec<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut files = Vec::new();
    for (folder, ending) in
        [("perf", ".perf.data.zst"), ("trace-cmd", ".zst"), ("xentrace", ".trace.zst"), ("text", ".txt.zst")]
    {
        for entry in fs::read_dir(fixtures.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().ends_with(ending) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn read(path: &Path, options: &Options) -> Result<Reading, Error> {
    traces::read(&Source::from(path), options, &mut ())
}

/// What a recorder would have known at the end.
fn summary(profile: &Profile) -> Summary {
    Summary {
        losses: profile.losses,
        names: profile.names.clone(),
        events: profile.events.clone(),
        last_ns: profile.span.map(|span| span.last_ns),
    }
}

/// Writes a recording of another tool as our own.
fn converted(path: &Path, profile: &Profile) -> Vec<u8> {
    let start_ns = profile.span.map(|span| span.first_ns);
    let header = Header { start_ns, ..Header::default() };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &header).unwrap();
    traces::read(&Source::from(path), &Options::default(), &mut writer).unwrap();
    writer.finish(summary(profile)).unwrap();
    bytes
}

fn read_bytes(bytes: &[u8], options: &Options) -> Reading {
    traces::read_bytes(bytes, options, &mut ()).unwrap()
}

#[test]
fn profiles_survive_our_own_format() {
    let mut compared = 0;
    for path in fixtures() {
        let Ok(original) = read(&path, &Options::default()) else { continue };
        let bytes = converted(&path, &original.profile);
        let again = read_bytes(&bytes, &Options::default());
        let name = path.file_name().unwrap().to_string_lossy();
        println!("{name} {} {:.1}", original.profile.total(), bytes.len() as f64 / original.profile.total() as f64);
        let (o, a) = (&original.profile, &again.profile);
        if o != a {
            println!("  span {} names {} events {} timeline {} losses {} vcpus {}", o.span == a.span, o.names == a.names, o.events == a.events, o.timeline == a.timeline, o.losses == a.losses, o.vcpus() == a.vcpus());
            for (x, y) in o.vcpus().iter().zip(a.vcpus()) {
                if x.vcpu != y.vcpu || x.reasons != y.reasons { println!("   {:?} {:?} reasons {}", x.vcpu, y.vcpu, x.reasons == y.reasons); }
                for (k, v) in &x.accesses { if y.accesses.get(k) != Some(v) { println!("    {k} {} {} {:?}", v.count, v.handling.count(), y.accesses.get(k).map(|v| (v.count, v.handling.count()))); } }
            }
        }
        compared += 1;
        assert_eq!(again.origin.format, Format::Exits);
        assert_eq!((again.damage, again.warnings), (None, vec![]), "{name}");
    }
    assert!(compared > 60, "{compared}");
}
