//! Prints the manual page of the control tree.

fn main() {
    print!("{}", iocm::control::manual::page());
}
