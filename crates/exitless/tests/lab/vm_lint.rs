//! `exitless vm lint` and `exitless vm fix` for a QEMU process on a real KVM host, and for a libvirt domain.

use serde_json::{Deserializer, Value, json};

use crate::command::{Said, forced_avic, lasting_inhibits};

/// The JSON documents that a script printed in sequence.
fn documents(said: &Said) -> Vec<Value> {
    Deserializer::from_str(&said.out).into_iter().collect::<Result<_, _>>().unwrap_or_else(|error| {
        panic!("{error}: {}{}", said.out, said.err);
    })
}

fn state<'a>(document: &'a Value, rule: &str) -> &'a str {
    let sections = document["sections"].as_array().unwrap();
    let mut findings = sections.iter().flat_map(|section| section["findings"].as_array().unwrap());
    let finding = findings.find(|finding| finding["rule"] == rule).unwrap_or_else(|| panic!("{document}"));
    finding["state"].as_str().unwrap()
}

#[test]
fn a_running_qemu_is_checked_and_its_fixed_command_line_runs() {
    let script = "qemu-system-x86_64 -name web -accel kvm -cpu host -smp 2 -m 64 -display none -nodefaults \
                  -no-user-config -netdev user,id=n0 -device e1000,netdev=n0,romfile= </dev/null >/dev/null 2>&1 & old=$!; \
                  sleep 3; exitless vm lint $old --json; status=$?; \
                  exitless vm fix $old --json; exitless vm fix $old --apply; echo $status $? >&2; \
                  exitless vm fix web | sed '1,/^Command line$/d' | sed '1d;/^$/,$d' >/tmp/command; \
                  kill $old; wait $old; (printf 'exec '; cat /tmp/command) >/tmp/new; \
                  sh /tmp/new </dev/null >/dev/null 2>/tmp/said & new=$!; sleep 3; \
                  exitless vm lint web --json; exitless verify --vm $new --json --duration 300ms; \
                  cat /tmp/command /tmp/said >&2; kill $new";
    let said = forced_avic(script);
    let [before, fix, after, verified] = &documents(&said)[..] else { panic!("{}{}", said.out, said.err) };
    assert!(said.err.contains("1 2\n"), "{}", said.err);
    assert_eq!(before["subject"].as_str().unwrap().split(' ').next(), Some("process"));
    assert_eq!((state(before, "pit-lost-ticks"), state(before, "irqchip")), ("fail", "warn"));
    assert_eq!((state(before, "emulated-network"), state(before, "accelerator")), ("warn", "pass"));
    // Linux 6.12 inhibits AVIC for nested guests only while they run.
    assert_eq!((state(before, "nested"), state(before, "hpet")), ("pass", "warn"));
    let arguments = fix["arguments"].as_array().unwrap();
    assert!(arguments.iter().any(|one| one == "kvm-pit.lost_tick_policy=discard"), "{fix}");
    assert_eq!((&fix["applied"], &fix["after"]["fail"]), (&false.into(), &0.into()));
    let left = fix["left"].as_array().unwrap();
    assert!(
        left.iter().any(|one| one["rule"] == "emulated-network" && one["why"] == "guest-follows"),
        "{fix}"
    );
    assert_eq!((state(after, "pit-lost-ticks"), state(after, "irqchip")), ("pass", "pass"), "{}", said.err);
    // For the new VM, the kernel confirms it.
    let vm = &verified["vms"][0];
    assert_eq!(vm["activation"]["reasons"], json!([]), "{verified}");
    assert_eq!(lasting_inhibits(vm), 0, "{verified}");
    assert_eq!(vm["state"]["last"]["irqchip"], "kernel");
}

#[test]
fn a_file_and_a_domain_are_written_back() {
    // A file takes the place of libvirt's storage.
    let virsh = r#"#!/bin/sh
for last; do :; done
case " $* " in
*" dumpxml "*) exec cat /tmp/kept.xml ;;
*" define "*) cp "$last" /tmp/kept.xml ;;
esac
"#;
    let xml = "<domain type='kvm'>\n  <name>web</name>\n  <vcpu>2</vcpu>\n  <os>\n    <type \
               machine='pc-q35-9.2'>hvm</type>\n  </os>\n  <features>\n    <acpi/> <!-- kept -->\n  </features>\n  \
               <cpu mode='host-passthrough'/>\n  <clock>\n    <timer name='hpet' present='no'/>\n  \
               </clock>\n</domain>\n";
    let script = format!(
        "cat >/usr/bin/virsh <<'E'\n{virsh}E\nchmod +x /usr/bin/virsh; cat >/tmp/kept.xml <<'E'\n{xml}E\n\
         cp /tmp/kept.xml /tmp/web.xml; chmod 640 /tmp/web.xml; cp /tmp/web.xml /tmp/old.xml\n\
         exitless vm fix /tmp/web.xml >/tmp/dry; echo dry $?; cmp /tmp/web.xml /tmp/old.xml && echo unchanged\n\
         exitless vm fix /tmp/web.xml --apply >/tmp/said || cat /tmp/said; stat -c 'mode %a' /tmp/web.xml\n\
         tail -n 2 /tmp/said; exitless vm lint /tmp/web.xml >/dev/null; echo lint $?\n\
         exitless vm fix libvirt:web --apply >/tmp/said || cat /tmp/said; tail -n 3 /tmp/said\n\
         cmp /tmp/web.xml /tmp/kept.xml && echo alike; cat /tmp/kept.xml\n\
         exitless restore >/tmp/said || cat /tmp/said\n\
         cmp /tmp/web.xml /tmp/old.xml && cmp /tmp/kept.xml /tmp/old.xml && echo restored"
    );
    let said = forced_avic(&script);
    for line in ["dry 1", "unchanged", "mode 640", "lint 0", "alike", "restored"] {
        assert!(said.out.lines().any(|one| one == line), "{line}: {}{}", said.out, said.err);
    }
    assert!(said.out.contains("`exitless restore` undoes it"), "{}", said.out);
    let kept = said.out.contains("<acpi/> <!-- kept -->") && said.out.contains("tickpolicy='discard'");
    assert!(kept, "{}", said.out);
}
