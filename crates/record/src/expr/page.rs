//! The book's page of the names that conditions may use, made from the tables that conditions are checked against: it
//! lists exactly the names that exist. Text out, nothing else.

use std::fmt::Write;

use super::NumberKind;
use super::names::{
    COMPONENT_FIGURES, COUNTS, Named, PROBE_FIGURES, SERIES, STORED, TAG_PREFIXES, TIMES, WHOLE,
};
use crate::counts::numbers::NumberSummary;

const OPENING: &str = "\
# Conditions

<!-- Made from the tables of names in crates/record. `UPDATE_REFERENCE=1 cargo test -p loadlab-record --test all \
conditions` regenerates it. -->

Conditions decide what must hold (`expect`, `--expect`), when a load ends early (`stop_when`, `--stop-when`) and when a
drain is over (`drain.until`). `find --expect` searches with them. All share one language and the names on this page.

```text
p99 < 50ms                         a comparison: < <= > >= == !=
errors < 0.1% and rate > 900/s     and, or, parentheses; `and` binds more tightly
p99[10s..30s] < 2 * p99[0s..10s]   a part of the load; sums, differences, products
web.cpu_time / ok < 2ms            quotients, with spaces around the `/`
web.cpu < 80%                      a component of the system
tag.checkout.p95 < 200ms           requests with a tag
steady(queued, 5s)                 a probe has kept its value for that long
'tag.GET /items.p99' < 200ms       a name with spaces, in quotes with its figure
```

- Times, sizes and rates need a unit: `200ms` `1m30s` `15MiB` `1000/s`. `0` needs none. Shares are `0.1%` or `0.001`;
  CPU is a percentage of one core.
- A difference needs spaces around its `-`, since names may contain dashes.
- **Parts of a trial** are named in brackets: seconds of the load (`p99[10s..30s]`), a batch (`goodput[batch 2]`), the drain
  (`db.memory.max[drain]`). Times, counts and rates have the first two, components and probes all three, durability none.
- **Until the trial is over**, `stop_when` and `drain.until` know no part of it, and not `lost`, `persisted` or `doubled`.
- A count beside a share, a rate or a size (`ok > 99%`) is refused, and a share beside a number above 1 (`errors < 10`).
- **Figures** that a plan names in `figures` are names like these; quote those with spaces: `'peak memory' < 300MiB`.
- **What is unknown** is neither true nor false. An expectation that is unknown fails; a `stop_when` that is unknown does
  not end the load. An expectation that too few samples leave open is undecided, exit code 6.
- A percentile among requests that never ended has only a lower bound: `p99 < 50ms` then fails, whatever the bound.
- `bench` and `find URL` know the names of the load. Names of steps, components and probes come from a plan.
";

/// The page, in Markdown.
pub fn conditions_page() -> String {
    let mut out = OPENING.to_owned();
    section(
        &mut out,
        "Response times",
        "From when each request was due, of successful responses and of requests that never ended.",
        "",
        &[&TIMES],
    );
    let about = "The same figures of other times: the name of the distribution, a dot and the figure, such as `service.p99` or `connect.max`.";
    section(&mut out, "Other times", about, "", &[&SERIES]);
    let about = "Of the whole load, warm-up included. `errors` leaves out requests of [programs](plan.md#programs), which are only counted.";
    section(&mut out, "Counts", about, "", &[&COUNTS]);
    section(&mut out, "Rates and times of the load", "", "", &[&WHOLE]);
    let about =
        "`durability` in the plan says where to read what was stored; without it only `accepted` is known.";
    section(&mut out, "Durability", about, "", &[&STORED]);
    let prefixes: Vec<String> = TAG_PREFIXES.iter().map(|p| format!("`tag.NAME.{p}.p99`")).collect();
    let about = format!(
        "Requests of the steps with a tag (`tags` of a step), and of each step by its [series](plan.md#each-step-has-a-series): \
         `'tag.GET /items.p99'`, in quotes. Times also exist of ok and of failed responses alone: {}.",
        prefixes.join(" and ")
    );
    section(&mut out, "Steps and tags", &about, "tag.NAME.", &[&TIMES, &COUNTS]);
    let figures: Vec<String> =
        NumberSummary::FIGURES.iter().map(|figure| format!("`number.NAME.{figure}`")).collect();
    let _ = write!(
        out,
        "\n## Captured numbers\n\nA value that a step captures with `number: true` has {}.\n",
        figures.join(", ")
    );
    let about = "Components of the plan by name, each replica by itself (`edge1`, `edge2`), services of a Compose file, and a load's own `command`.";
    section(&mut out, "Components", about, "COMPONENT.", &[&COMPONENT_FIGURES]);
    let about = "`probes` of the system. The name of a probe alone is its last reading; while the load runs, its latest one.";
    section(&mut out, "Probes", about, "PROBE.", &[&PROBE_FIGURES]);
    out
}

fn section(out: &mut String, heading: &str, about: &str, prefix: &str, tables: &[&[Named]]) {
    let _ = write!(out, "\n## {heading}\n\n");
    if !about.is_empty() {
        let _ = write!(out, "{about}\n\n");
    }
    out.push_str("| name | unit | |\n|---|---|---|\n");
    for Named { name, kind, doc } in tables.iter().copied().flatten() {
        let _ = writeln!(out, "| `{prefix}{name}` | {} | {doc} |", unit(*kind));
    }
}

fn unit(kind: NumberKind) -> &'static str {
    match kind {
        NumberKind::Plain => "number",
        NumberKind::Fraction => "share: `0.1%`",
        NumberKind::Percent => "`%` of one core",
        NumberKind::Duration => "time: `200ms`",
        NumberKind::Bytes => "size: `15MiB`",
        NumberKind::Rate => "rate: `1000/s`",
    }
}
