//! Changes the limits of a running component.

use loadlab_record::sync::lock;

use super::System;
use crate::cgroup::group::LimitError;
use crate::component::Component;
use crate::component::limits::limit_open_files;
use crate::error::{Error, Result};
use crate::spec::{Limits, LinkLimits, Unavailable};

impl System {
    /// Replaces the limits of a running component: whatever `limits` omits becomes unlimited, but limits that its engine
    /// set on some disks alone hold again. Returns the limits this host cannot apply.
    ///
    /// # Errors
    /// [`Error::Limit`]: the kernel refused one limit, or took another value. Those before it are in force.
    pub fn limit(&self, component: &Component, limits: &Limits) -> Result<Vec<Unavailable>> {
        let inner = &component.inner;
        // One change at a time: two that change the same group would read back each other's value.
        let mut life = lock(&inner.life);
        let failed = |LimitError { limit, why, hint }| Error::Limit {
            component: inner.spec.name.clone(),
            limit,
            why,
            hint,
        };
        // `life.limits` is updated limit by limit: the next change is compared with what is in force, and some may fail
        // here.
        let unavailable = inner.group.change(&mut life.limits, limits).map_err(failed)?;
        if life.limits.open_files != limits.open_files {
            if let Err(error) = limit_open_files(inner, limits.open_files) {
                // Some of its processes may have the new limit already. Report the first error.
                let _ = limit_open_files(inner, life.limits.open_files);
                return Err(failed(error));
            }
            life.limits.open_files = limits.open_files;
        }
        let width = LinkLimits { bytes_per_s: limits.link.bytes_per_s, ..life.limits.link };
        for link in [width, limits.link] {
            if life.limits.link != link {
                life.link = self.limit_link(&inner.spec.name, &life.limits.link, &link)?;
                life.limits.link = link;
            }
        }
        let of = |u| Unavailable { component: inner.spec.name.clone(), ..u };
        Ok(unavailable.into_iter().map(of).collect())
    }
}
