use super::*;
use crate::ring::RingFeatures;
use crate::testing::{BlockDriver, FrontEnd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn config(directory: &std::path::Path, arrangement: &str) -> Config {
    let devices = (0..3).map(|number| {
        let socket = directory.join(format!("{number}.sock"));
        format!("[[device]]\nname = \"d{number}\"\ntype = \"block\"\nsocket = {socket:?}\n")
    });
    let devices: String = devices.collect();
    Config::parse(&format!("[workers]\narrangement = \"{arrangement}\"\n{devices}")).unwrap()
}

#[test]
fn devices_are_given_to_workers_as_they_are_to_be() {
    for (arrangement, workers) in [("shared", [0, 0, 0]), ("per-device", [0, 1, 2])] {
        let directory = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(&config(directory.path(), arrangement)).unwrap();
        let mut fronts = Vec::new();
        for endpoint in daemon.endpoints() {
            let driver = BlockDriver::new(16, RingFeatures::default());
            let mut front = FrontEnd::new(UnixStream::connect(&endpoint.config.socket).unwrap()).unwrap();
            front.negotiate(&driver.driver, 0).unwrap();
            assert!(front.start(0, &driver.driver.layout(), 16, 0).unwrap());
            fronts.push((front, driver));
        }
        let figures = daemon.figures();
        let workers_of_queues: Vec<_> =
            figures.devices.iter().map(|device| device.queues[0].worker).collect();
        assert_eq!(workers_of_queues, workers.map(Some));
        assert!(figures.devices.iter().all(|device| device.connected));
        let text = serde_json::to_string(&figures).unwrap();
        assert!(text.contains("\"kicks_saved\":0") && text.contains("\"naps\":"), "{text}");
        let sockets: Vec<_> =
            daemon.endpoints().iter().map(|endpoint| endpoint.config.socket.clone()).collect();
        drop(daemon);
        assert!(sockets.iter().all(|socket| !socket.exists()), "nothing is left");
        for (mut front, _) in fronts {
            assert!(front.ask(1).is_err(), "the connection is closed");
        }
    }
}

#[test]
fn a_socket_that_was_left_is_replaced_and_one_in_use_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), "shared");
    drop(std::os::unix::net::UnixListener::bind(&config.devices[0].socket).unwrap());
    let daemon = Daemon::start(&config).unwrap();
    let error = Daemon::start(&config).unwrap_err();
    assert!(error.to_string().contains("0.sock"), "{error}");
    std::thread::sleep(Duration::from_millis(10));
    assert!(daemon.endpoints()[0].config.socket.exists());
}
