//! The keys of a plan: one table that the reader, the "did you mean" hints and the JSON Schema share.
//!
//! A key that is not here does not exist.

mod component_kind;
pub(crate) mod journey;
pub(crate) mod other_tools;
pub(crate) mod reference;
pub(crate) mod renamed;
pub(crate) mod schema;
pub(crate) mod shape;
mod watch;

pub(crate) use component_kind::{BUILD, COMPOSE, CONTAINER, EXTERNAL, HEALTH};
pub(crate) use journey::{
    AUTH, BASIC, BODY, CAPTURE, CHECK, EXPECT, FEED, MESSAGE, PART, SESSIONS, STEP, TLS, WEBSOCKET_SEND,
};
pub use shape::METHODS;
pub(crate) use shape::{
    ANY_PATTERN, ENV_PATTERN, Group, Key, MAX_COUNT, MAX_EXPANDED, MAX_REPLICAS, MAX_TRIALS, MAX_USERS,
    NAME_PATTERN, Need, PROTOCOLS, SIGNALS, Section, Shape, WORD_PATTERN, key,
};
pub(crate) use watch::{DURABILITY, EVENT, LIMITS, PROBE, REDIS_KEYS};

pub(crate) static PLAN: Section = Section {
    id: "plan",
    called: "the plan",
    doc: "An experiment of loadlab: a system, the load on it, what varies and what is expected.",
    keys: &[
        key("loadlab", Shape::Version, "Version of the plan language; always 1."),
        key(
            "name",
            Shape::Text,
            "What the experiment is called, in reports and in the name of the run's folder.",
        ),
        key("description", Shape::Text, "What it is about, for readers of the report."),
        key(
            "profiles",
            Shape::MapOf(NAME_PATTERN, &Shape::Profile),
            "Named sets of changes to this plan, chosen with `--profile`. `quick` means a first look: no verdicts on differences.",
        ),
        key("system", Shape::In(&SYSTEM), "Everything under test, and how it is brought up."),
        key("load", Shape::In(&LOAD), "What is sent, and when."),
        key("loads", Shape::MapOf(NAME_PATTERN, &Shape::In(&LOAD)), "Several loads by name, sent at once."),
        key(
            "matrix",
            Shape::Matrix,
            "What varies: a list of named cases, or axes of which every combination is a case.",
        ),
        key(
            "revisions",
            Shape::ListOf(&Shape::Text),
            "Revisions of the plan's git repository that are compared, such as `[main, HEAD]`: an axis of the matrix, \
             `${case.revision}`. `${plan.dir}` and all paths are those of each. The first is the base.",
        ),
        key(
            "trials",
            Shape::CountOr(1, MAX_TRIALS, &TRIALS),
            "How often each case is repeated, or until when. Default 1.",
        ),
        key(
            "order",
            Shape::OneOf(&["interleaved", "sequential"]),
            "Trials of all cases in turn (default), or all trials of one case before the next.",
        ),
        key(
            "find",
            Shape::In(&FIND),
            "Each trial searches for the highest load that meets conditions: the capacity, a figure like any other.",
        ),
        key(
            "stop_when",
            Shape::ListOf(&Shape::Text),
            "Conditions that end a load early, such as `failed > 1024`.",
        ),
        key("drain", Shape::In(&DRAIN), "After the load: wait until the work is done."),
        key(
            "expect",
            Shape::ListOf(&Shape::Text),
            "What must hold, such as `p99 < 200ms`; sets the exit code.",
        ),
        key(
            "allow_hosts",
            Shape::ListOf(&Shape::Text),
            "Hosts that may be loaded besides this machine's loopback.",
        ),
        key(
            "events",
            Shape::ListOf(&Shape::In(&EVENT)),
            "What happens to the system during the load, such as `{at: 10s, do: kill edge2}`.",
        ),
        key(
            "levers",
            Shape::MapOf(ANY_PATTERN, &Shape::In(&LEVER)),
            "What can be changed while the system is up, besides limits: a pool, a number of workers. `loadlab why` tries \
             them.",
        ),
        key(
            "profile",
            Shape::BoolOr(&PROFILE),
            "Samples the stacks of components while loads run: flame graphs in the report. `true`: of all components.",
        ),
        key(
            "figures",
            Shape::MapOf(ANY_PATTERN, &Shape::TextOr(&FIGURE)),
            "The figures that matter, by name, such as `{peak memory: service.memory.max}`: reports, comparisons and \
             the live screen show them first, and conditions may name them.",
        ),
        key(
            "report",
            Shape::OneOf(&["siege", "wrk"]),
            "Adds a table in the layout of siege or wrk to the report, for comparison with that tool's output.",
        ),
        key(
            "derive",
            Shape::MapOf(ANY_PATTERN, &Shape::TextOr(&DERIVED)),
            "Figures derived from those of cases, by name: `elapsed` of case `a` is `a.elapsed`.",
        ),
        key(
            "durability",
            Shape::In(&DURABILITY),
            "Where to read what was stored, to compare it with what was accepted.",
        ),
        key(
            "isolate",
            Shape::Isolation,
            "Network namespaces for the run: `true` makes one for each component, joined by links; `shared` \
             makes one for all. Default false.",
        ),
        key(
            "setup",
            Shape::ListOf(&Shape::In(&STEP)),
            "Steps taken once before the loads of each trial; all users see what they capture.",
        ),
    ],
    required: &["loadlab", "name"],
    groups: &[Group { keys: &["load", "loads"], why: "`load` is for one load, `loads` for several by name" }],
    needs: &[],
};

pub(crate) static SYSTEM: Section = Section {
    id: "system",
    called: "`system`",
    doc: "Everything under test.",
    keys: &[
        key(
            "components",
            Shape::MapOf(NAME_PATTERN, &Shape::In(&COMPONENT)),
            "The parts of the system by name, in the order in which they are started.",
        ),
        key("seed", Shape::Commands, "Run once the system is ready, to fill it with data."),
        key("before_trial", Shape::Commands, "Run before the load of each trial."),
        key("after_trial", Shape::Commands, "Run after the load of each trial."),
        key(
            "probes",
            Shape::MapOf(WORD_PATTERN, &Shape::In(&PROBE)),
            "Numbers read from the system while it runs.",
        ),
        key(
            "sample_rate",
            Shape::OneOf(&["1/s", "2/s", "4/s", "10/s"]),
            "How often components are read. Default `1/s`.",
        ),
        key(
            "compose",
            Shape::TextOr(&COMPOSE),
            "A Compose file, brought up unchanged by the installed Compose; its services are components.",
        ),
        key(
            "engine",
            Shape::Text,
            "Which engine runs containers: `docker`, `podman`, or a socket. Default: DOCKER_HOST, else the first that answers.",
        ),
    ],
    required: &[],
    groups: &[],
    needs: &[],
};

pub(crate) static COMPONENT: Section = Section {
    id: "component",
    called: "a component",
    doc: "One part of the system: a process, a container, a service of the Compose file, or something that runs already.",
    keys: &[
        key("run", Shape::Command, "What starts it: a shell line, or a list of words that is run as is."),
        key(
            "build",
            Shape::Commands,
            "What builds it. All builds of all cases finish before the first trial.",
        ),
        key(
            "env",
            Shape::MapOf(ENV_PATTERN, &Shape::Text),
            "Environment variables, in addition to those of loadlab itself.",
        ),
        key(
            "dir",
            Shape::Text,
            "Where it is built and run; relative to the plan's folder, which is the default.",
        ),
        key(
            "replicas",
            Shape::Count(1, MAX_REPLICAS),
            "How many instances run: NAME1, NAME2 … Default 1, named NAME.",
        ),
        key("port", Shape::Port, "Its port, as `${port}`: a number, or `auto` for a free one."),
        key("ports", Shape::MapOf(NAME_PATTERN, &Shape::Port), "More ports by name, as `${port.NAME}`."),
        key(
            "ready",
            Shape::In(&READY),
            "When it counts as up. Default: as soon as its process runs; a container when its health check passes.",
        ),
        key("limits", Shape::In(&LIMITS), "Limits on what it may use."),
        key(
            "lifetime",
            Shape::OneOf(&["trial", "case", "experiment"]),
            "How long it lives: restarted for each trial (default), restarted when the case changes, or kept \
             for the whole experiment.",
        ),
        key("stop", Shape::In(&STOP), "How it is stopped."),
        key("container", Shape::In(&CONTAINER), "The container to run."),
        key("compose", Shape::Text, "The service of the Compose file."),
        key(
            "external",
            Shape::In(&EXTERNAL),
            "Something that runs already: it is only watched, never started or stopped.",
        ),
    ],
    required: &[],
    groups: &[Group {
        keys: &["run", "container", "compose", "external"],
        why: "what it is: a process, a container, a service of the Compose file, or something that runs already",
    }],
    needs: &[],
};

pub(crate) static READY: Section = Section {
    id: "ready",
    called: "`ready`",
    doc: "When a component counts as up.",
    keys: &[
        key("http", Shape::Text, "A URL that answers with a status below 400."),
        key("tcp", Shape::Text, "HOST:PORT that accepts a connection."),
        key("log", Shape::Text, "A text that appears in a line of its output."),
        key("health", Shape::True, "The container's own health check passes."),
        key("timeout", Shape::Duration, "How long it may take. Default 30s."),
    ],
    required: &[],
    groups: &[Group { keys: &["http", "tcp", "log", "health"], why: "one condition is enough" }],
    needs: &[],
};

pub(crate) static STOP: Section = Section {
    id: "stop",
    called: "`stop`",
    doc: "How a component is stopped.",
    keys: &[
        key("signal", Shape::OneOf(SIGNALS), "Signal that is sent first. Default TERM."),
        key("timeout", Shape::Duration, "How long it may take before it is killed. Default 10s."),
    ],
    required: &[],
    groups: &[],
    needs: &[],
};

pub(crate) static LOAD: Section = Section {
    id: "load",
    called: "a load",
    doc: "What is sent, and when.",
    keys: &[
        key(
            "users",
            Shape::Count(1, MAX_USERS),
            "Closed model: the number of users; each sends its next request after its last has ended.",
        ),
        key("rate", Shape::Rate, "Open model: requests fall due at this rate, whatever the system does."),
        key(
            "stages",
            Shape::ListOf(&Shape::In(&STAGE)),
            "A number of users or a rate that changes in stages, one after the other; the last one ends the load.",
        ),
        key("duration", Shape::Duration, "The schedule ends after this time."),
        key(
            "requests",
            Shape::Count(1, MAX_COUNT),
            "The load ends after this many requests, shared by all users; of `sessions`, after this many users.",
        ),
        key(
            "repeats",
            Shape::Count(1, MAX_COUNT),
            "The load ends after this many rounds of the journey by every user.",
        ),
        key("ramp", Shape::Duration, "Users start, or the rate grows, evenly over this time. Default 0s."),
        key(
            "warmup",
            Shape::DurationOrAuto,
            "Percentiles and rates leave out this first part; `auto`: the warm-up, if one is found. Default 0s: nothing is left out.",
        ),
        key("pace", Shape::Duration, "Each user's steps fall due at this interval; needs users."),
        key(
            "think",
            Shape::Think,
            "Each user's pause after a response: a duration, `{uniform: [1s, 3s]}` or `{exponential: 2s}`. Default 0s.",
        ),
        key("batches", Shape::In(&BATCHES), "Repeats the load, against the running system."),
        key(
            "arrivals",
            Shape::OneOf(&["constant", "poisson"]),
            "How requests of a rate are spread in time. Default constant.",
        ),
        key(
            "when_behind",
            Shape::OneOf(&["queue", "drop"]),
            "What happens to requests that cannot start when due. Default queue.",
        ),
        key(
            "max_in_flight",
            Shape::Count(1, MAX_USERS),
            "Maximum number of requests of a rate at a time. Default 10000; reaching it raises a doubt.",
        ),
        key("timeout", Shape::Duration, "Longest wait for a response. Default 30s."),
        key(
            "grace",
            Shape::Duration,
            "Requests in flight at the end may finish within this time. Default 5s.",
        ),
        key("keep_alive", Shape::Bool, "Reuse connections. Default true."),
        key(
            "threads",
            Shape::Count(1, 1024),
            "Number of threads that send. Default: half of the cores, at least one.",
        ),
        key("seed", Shape::Count(0, MAX_COUNT), "Seed of all random choices. Default 1."),
        key("journey", Shape::ListOf(&Shape::In(&STEP)), "The steps one user takes, in order."),
        key("start", Shape::Duration, "Its start, counted from that of the trial's loads. Default 0s."),
        key("user_setup", Shape::ListOf(&Shape::In(&STEP)), "Steps of each user before its first journey."),
        key("user_teardown", Shape::ListOf(&Shape::In(&STEP)), "Steps of each user after its last journey."),
        key(
            "sessions",
            Shape::RateOr(&SESSIONS),
            "Users that arrive at this rate; each makes one journey and leaves.",
        ),
        key(
            "feeds",
            Shape::MapOf(WORD_PATTERN, &Shape::In(&FEED)),
            "Rows of data for users, by name: `${NAME.COLUMN}`.",
        ),
        key("cookies", Shape::Bool, "Users keep cookies. Default false."),
        key("redirects", Shape::Count(0, 50), "Maximum number of redirects that a step follows. Default 0."),
        key("compression", Shape::Bool, "Request compressed responses, and decode them. Default false."),
        key(
            "protocol",
            Shape::OneOf(PROTOCOLS),
            "`http/1.1` (default), `http/2`, or `auto`: what the server offers.",
        ),
        key(
            "streams_per_connection",
            Shape::Count(1, 1000),
            "Requests at a time on each HTTP/2 connection. Default 1.",
        ),
        key("proxy", Shape::Text, "`http://HOST:PORT` that all requests go through."),
        key("tls", Shape::In(&TLS), "How `https` targets are trusted."),
        key(
            "command",
            Shape::In(&COMMAND_LOAD),
            "A program that makes the load; a probe counts what it does.",
        ),
        key("cases", Shape::Texts, "The cases it belongs to, by name (`insert *`). Default: all."),
    ],
    required: &[],
    groups: &[
        Group {
            keys: &["users", "rate", "stages", "sessions", "command"],
            why: "a load is either closed (a number of users) or open (a rate); the unit of `stages` decides, \
                  and a `command` makes its own load",
        },
        Group {
            keys: &["duration", "requests", "repeats", "stages", "command"],
            why: "a load ends in one way; `stages` end with the last of them, a `command` when it exits",
        },
        Group {
            keys: &["journey", "command"],
            why: "what is sent: the steps of a `journey`, or whatever a `command` does",
        },
    ],
    needs: &[
        Need { key: "pace", needs: &["users", "stages"], hint: keys_hint::PACE },
        Need { key: "think", needs: &["users", "stages"], hint: keys_hint::THINK },
        Need { key: "repeats", needs: &["users"], hint: "`requests` or `duration` end a `rate`" },
        Need { key: "arrivals", needs: &["rate", "stages"], hint: keys_hint::ARRIVALS },
        Need { key: "max_in_flight", needs: &["rate", "stages"], hint: keys_hint::MAX_IN_FLIGHT },
    ],
};

/// Why some keys are only for users, and some only for a rate; also used for `stages` of the other kind.
pub(crate) mod keys_hint {
    pub const PACE: &str = "with a `rate`, requests fall due anyway";
    pub const THINK: &str = "with a `rate`, requests fall due whether or not a response has arrived";
    pub const ARRIVALS: &str = "users send when their last request has ended";
    pub const MAX_IN_FLIGHT: &str = "each user has one request at a time";
}

/// Keys of a load that are allowed beside `command`.
pub(crate) const BESIDE_COMMAND: &[&str] = &["command", "start", "batches", "cases"];

pub(crate) static COMMAND_LOAD: Section = Section {
    id: "command_load",
    called: "`command` of a load",
    doc: "A program that makes the load; a probe counts what it does.",
    keys: &[
        key("run", Shape::Command, "The command that makes the load, from its start to its end."),
        key("counted_by", Shape::Text, "The probe that counts its requests, by how much it grows."),
        key(
            "requests",
            Shape::Count(1, MAX_COUNT),
            "How many requests it makes, as `${requests}` in `run` and `env`. Fewer or more count as a failure.",
        ),
        key(
            "started_when_output",
            Shape::Text,
            "Text in its output that starts the load. Default: the load starts with the program.",
        ),
        key("timeout", Shape::Duration, "How long it may take before it is killed. Default 10m."),
        key(
            "env",
            Shape::MapOf(ENV_PATTERN, &Shape::Text),
            "Environment variables, in addition to those of loadlab itself.",
        ),
        key("dir", Shape::Text, "Where it runs; relative to the plan's folder, which is the default."),
    ],
    required: &["run", "counted_by"],
    groups: &[],
    needs: &[],
};

pub(crate) static STAGE: Section = Section {
    id: "stage",
    called: "a stage",
    doc: "A stage of a load: it moves to a level, or holds one.",
    keys: &[
        key("to", Shape::Level, "The level when the stage ends: users (`100`) or a rate (`1000/s`)."),
        key("over", Shape::Duration, "How long it takes to get there, in a straight line; 0s is a jump."),
        key("hold", Shape::Duration, "Stays at the level for this time."),
        key("from", Shape::Level, "The level at its start. Default: where the last stage ended; 0 at first."),
    ],
    required: &[],
    groups: &[Group { keys: &["to", "hold"], why: "a stage moves to a level, or holds the current one" }],
    needs: &[Need { key: "over", needs: &["to"], hint: "`hold` already says how long" }],
};

pub(crate) static THINK: Section = Section {
    id: "think",
    called: "`think`",
    doc: "How think times are distributed.",
    keys: &[
        key("uniform", Shape::Between, "Uniformly between two times: `[1s, 3s]`."),
        key("exponential", Shape::Duration, "Exponentially, with this mean: many short, few long."),
    ],
    required: &[],
    groups: &[Group { keys: &["uniform", "exponential"], why: "think times have one distribution" }],
    needs: &[],
};

pub(crate) static BATCHES: Section = Section {
    id: "batches",
    called: "`batches`",
    doc: "Repeats the load, against the running system.",
    keys: &[
        key("repeat", Shape::Count(1, 1000), "How many batches in all."),
        key("pause", Shape::Duration, "Pause between two batches. Default 0s."),
    ],
    required: &["repeat"],
    groups: &[],
    needs: &[],
};

/// Values by axis.
static VALUES: Shape = Shape::MapOf(WORD_PATTERN, &Shape::Scalar);

pub(crate) static AXES: Section = Section {
    id: "matrix",
    called: "`matrix`",
    doc: "Axes of which every combination is a case.",
    keys: &[
        key("axes", Shape::MapOf(WORD_PATTERN, &Shape::ListOf(&Shape::Scalar)), "The values of each axis."),
        key("exclude", Shape::ListOf(&VALUES), "Combinations to leave out: the values of some axes."),
        key("include", Shape::ListOf(&VALUES), "Cases to add: a value for every axis."),
    ],
    required: &["axes"],
    groups: &[],
    needs: &[],
};

pub(crate) static FIGURE: Section = Section {
    id: "figure",
    called: "a figure in `figures`",
    doc: "A figure that matters: a name for a number that is computed from others.",
    keys: &[
        key(
            "value",
            Shape::Text,
            "A number in the language of conditions, such as `db.cpu_time / ok` or `web.memory.max[drain]`.",
        ),
        key(
            "unit",
            Shape::Text,
            "For numbers without a unit, such as a probe's: `ms`, `MiB`, or a word; `%` shows a ratio as per cent. Default: \
             what the value is of.",
        ),
        key(
            "better",
            Shape::OneOf(&["more", "less", "none"]),
            "Which way it is better. Default: less of times, sizes, CPU and errors; more of rates.",
        ),
        key("about", Shape::Text, "What it is, for readers of the report."),
    ],
    required: &["value"],
    groups: &[],
    needs: &[],
};

pub(crate) static DERIVED: Section = Section {
    id: "derived",
    called: "a figure in `derive`",
    doc: "A figure derived from those of cases, compared with another.",
    keys: &[
        key(
            "value",
            Shape::Text,
            "A sum, difference, product or quotient, such as `grouped.elapsed + grouped.drain`.",
        ),
        key("against", Shape::Text, "What it is compared with: reports show the ratio of the two."),
    ],
    required: &["value"],
    groups: &[],
    needs: &[],
};

pub(crate) static DRAIN: Section = Section {
    id: "drain",
    called: "`drain`",
    doc: "After the load: wait until the work is done.",
    keys: &[
        key("until", Shape::Text, "Condition, such as `stored == accepted or steady(stored, 5s)`."),
        key("at_most", Shape::Duration, "Longest wait. Default 60s."),
    ],
    required: &["until"],
    groups: &[],
    needs: &[],
};

pub(crate) static FIND: Section = Section {
    id: "find",
    called: "`find`",
    doc: "Each trial searches for the highest load that meets conditions, level by level.",
    keys: &[
        key("users", Shape::LevelRange, "The numbers of users to search, such as `1..500`."),
        key("rate", Shape::LevelRange, "The rates to search, in requests per second, such as `50..2000`."),
        key(
            "expect",
            Shape::ListOf(&Shape::Text),
            "What a level must meet, such as `p99 < 100ms`; it must also be steady.",
        ),
        key("load", Shape::Text, "The load that is varied, where there are several."),
        key(
            "level_duration",
            Shape::Duration,
            "How long each level is measured. Default: the load's own duration, or 10s.",
        ),
        key(
            "settle",
            Shape::Duration,
            "How long each level settles before that. Default: the load's `warmup`, or a fifth of the duration and at \
             most 5s.",
        ),
        key("max_levels", Shape::Count(1, 100), "Levels to measure at most, repeats included. Default 15."),
    ],
    required: &["expect"],
    groups: &[Group { keys: &["users", "rate"], why: "a search varies either users or a rate" }],
    needs: &[],
};

pub(crate) static LEVER: Section = Section {
    id: "lever",
    called: "a lever",
    doc: "A value that a command changes while the system is up, such as the size of a pool.",
    keys: &[
        key("now", Shape::Count(1, MAX_COUNT), "Its value as the system starts."),
        key(
            "less",
            Shape::Count(1, MAX_COUNT),
            "A tighter one, about a tenth less: what `loadlab why` measures the cost of.",
        ),
        key(
            "more",
            Shape::ListOf(&Shape::Count(1, MAX_COUNT)),
            "Values that it can be raised to, the smallest first.",
        ),
        key(
            "set",
            Shape::Command,
            "The command that sets it to `${value}`. Runs in the plan's folder, during the load.",
        ),
    ],
    required: &["now", "less", "set"],
    groups: &[],
    needs: &[],
};

pub(crate) static PROFILE: Section = Section {
    id: "profile",
    called: "`profile`",
    doc: "Whose stacks are sampled while loads run, in one second of every two: the others show what it costs.",
    keys: &[
        key(
            "components",
            Shape::ListOf(&Shape::Text),
            "Components whose stacks are sampled, such as `[api]`. Default: all.",
        ),
        key(
            "on",
            Shape::OneOf(&["cpu", "wait", "both"]),
            "Where threads spend CPU time, or where they wait (for locks, disks, answers, not for work). Default `cpu`.",
        ),
        key(
            "rate",
            Shape::Count(1, 1_000),
            "Samples per second and core; of waits about ten times as many. Default 199.",
        ),
    ],
    required: &[],
    groups: &[],
    needs: &[],
};

/// Keys of `trials`.
pub(crate) static TRIALS: Section = Section {
    id: "trials",
    called: "`trials`",
    doc: "Trials that go on, round by round, until it is certain how the cases differ; or a number of them, with a control or without.",
    keys: &[
        key("count", Shape::Count(1, MAX_TRIALS), "How often each case is repeated."),
        key("until", Shape::OneOf(&["certain"]), "`certain`: until the figures that matter are settled."),
        key("within", Shape::Share, "Cases that differ by less than this are the same. Default 2%."),
        key("at_most", Shape::Count(1, MAX_TRIALS), "Rounds at most. Default 30."),
        key(
            "control",
            Shape::Bool,
            "The case that others are compared with has trials under a second name, too: they show the smallest \
             difference that is visible, and nothing below it is called better or worse. Default true; fewer than 5 trials \
             have none.",
        ),
        key(
            "budget",
            Shape::Duration,
            "How long all trials together may take: no round begins that would probably take longer.",
        ),
    ],
    required: &[],
    groups: &[Group { keys: &["until", "count"], why: "trials end when it is certain, or after a number" }],
    needs: &[
        Need {
            key: "within",
            needs: &["until"],
            hint: "a `count` of trials is judged by `--equivalence-margin`",
        },
        Need { key: "at_most", needs: &["until"], hint: "a `count` is the number of trials" },
        Need { key: "budget", needs: &["until"], hint: "all trials of a `count` are made" },
    ],
};

pub(crate) static SECTIONS: &[&Section] = &[
    &PLAN,
    &SYSTEM,
    &COMPONENT,
    &READY,
    &LIMITS,
    &STOP,
    &PROBE,
    &EVENT,
    &DURABILITY,
    &LOAD,
    &COMMAND_LOAD,
    &STAGE,
    &THINK,
    &TRIALS,
    &FIND,
    &LEVER,
    &PROFILE,
    &BATCHES,
    &STEP,
    &BODY,
    &CHECK,
    &AXES,
    &DRAIN,
    &DERIVED,
    &FIGURE,
    &AUTH,
    &BASIC,
    &CAPTURE,
    &EXPECT,
    &FEED,
    &MESSAGE,
    &PART,
    &SESSIONS,
    &TLS,
    &WEBSOCKET_SEND,
    &BUILD,
    &COMPOSE,
    &CONTAINER,
    &EXTERNAL,
    &HEALTH,
];
