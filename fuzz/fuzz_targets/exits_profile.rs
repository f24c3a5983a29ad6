//! Profiles from anywhere, one after the other: read, merged in every order, written again.

#![no_main]

use exits::Profile;
use libfuzzer_sys::fuzz_target;

/// Their combinations multiply.
const MOST: usize = 3;

fuzz_target!(|bytes: &[u8]| {
    let stream = serde_json::Deserializer::from_slice(bytes).into_iter::<Profile>();
    let mut profiles: Vec<Profile> = stream.map_while(Result::ok).take(MOST).collect();
    // Of two names for one VM the first stays, whichever that is.
    profiles.iter_mut().for_each(|profile| profile.names.clear());
    for profile in &profiles {
        let written = serde_json::to_vec(profile).expect("a profile can be written");
        let read: Profile = serde_json::from_slice(&written).expect("what was written can be read");
        assert!(read == *profile, "what was written can be read again");
        same(&sum([&Profile::new(), profile]), profile);
        let _ = (profile.reasons(), profile.accesses(), profile.total(), profile.timeline.by_reason());
    }
    if let [one, two, ..] = profiles.as_slice() {
        same(&sum([one, two]), &sum([two, one]));
    }
    if let [one, two, three] = profiles.as_slice() {
        same(&sum([&sum([one, two]), three]), &sum([one, &sum([two, three])]));
    }
});

/// A file may give a thread several numbers; which of them a part without a number belongs to, the order decides.
fn same(one: &Profile, two: &Profile) {
    assert!(one.span == two.span && one.timeline == two.timeline && one.losses == two.losses);
    assert!(one.reasons() == two.reasons() && one.accesses() == two.accesses() && one.events == two.events);
}

fn sum(profiles: [&Profile; 2]) -> Profile {
    let mut sum = profiles[0].clone();
    sum.merge(profiles[1]);
    sum
}
