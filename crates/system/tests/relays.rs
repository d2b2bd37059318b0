//! Relays in front of components' ports: they come and go with the components.

use loadlab_system::{Error, LinkLimits, RelayAt};

use crate::common::{Bench, FIXTURE, free_port};

#[test]
fn no_relay_stays_where_its_link_cannot_be_limited() {
    let bench = Bench::with(|spec| spec.exe = Some(FIXTURE.into()));
    let mut spec = bench.spec("web", "sleep 1000");
    spec.relay = Some(RelayAt::Ports(vec![(free_port(), free_port())]));
    // The link rate can be limited only for a component with its own network.
    spec.limits.link = LinkLimits { bytes_per_s: Some(1 << 20), ..LinkLimits::default() };
    let error = bench.system.up(&spec).unwrap_err();
    assert!(matches!(error, Error::NoLink { .. }), "{error}");
    assert!(bench.system.relay_of("web").is_none() && bench.system.components().is_empty());

    // The next component finds the port free, and no relay is reported as dead.
    spec.limits.link = LinkLimits { delay_ns: Some(1_000_000), ..LinkLimits::default() };
    let web = bench.system.up(&spec).unwrap();
    assert!(bench.system.relay_of("web").is_some());
    bench.system.down(&web).unwrap();
    assert!(bench.system.components().is_empty());
    assert!(bench.notices.try_recv().is_err());
}
