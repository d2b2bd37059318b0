//! By default each step of a journey has its own figures, and the figures that matter are named while a load runs.

use crate::run_support::Lab;

/// The demo service under three steps, one of which requests something that does not exist.
fn three_steps(load: &str, rest: &str) -> String {
    let demo = env!("CARGO_BIN_EXE_loadlab");
    let at = "http://127.0.0.1:${components.web.port}";
    format!(
        "loadlab: 1\nname: three steps\nsystem:\n  components:\n    web: {{ run: \"{demo} demo --port ${{port}}\", \
         port: auto, ready: {{ http: \"http://127.0.0.1:${{port}}/health\" }} }}\n\
         load:\n  {load}\n  journey:\n    - get: \"{at}/items/${{random(1, 9)}}\"\n    - get: \"{at}/nothing?x=1,2\"\n    \
         - {{ get: \"{at}/\", tags: [home] }}\n{rest}"
    )
}

#[test]
fn the_failing_one_of_three_steps_is_named() {
    let lab = Lab::new();
    let expect = "expect: [\"'tag.GET /items/$${random(1, 9)}.failed' == 0\", \"'tag.GET /nothing?x=1,2.errors' == 100%\"]\n";
    let ran = lab.run(&three_steps("users: 2\n  repeats: 10", expect), &["--quiet"]);
    // On a busy machine the measurement may be INVALID, but it is still recorded.
    assert!(matches!(ran.code, Some(0 | 4)), "{ran:?}");
    let line = "✘ failing  GET /nothing?x=1,2: 20 of 20 failed (http_4xx)";
    assert!(ran.out.contains(line), "{}", ran.out);
    let summary = lab.record().summary("default", 1);
    let names: Vec<&String> = summary["by_tag"].as_object().expect("series").keys().collect();
    assert_eq!(names, ["GET /items/${random(1, 9)}", "GET /nothing?x=1,2", "home"]);
    let broken = &summary["by_tag"]["GET /nothing?x=1,2"];
    assert_eq!((&broken["requests"]["failed"], &broken["failures"]["http_4xx"]), (&20.into(), &20.into()));
    let text = lab.record().report("text");
    let row = |name: &str| {
        let found = text.lines().find(|line| line.trim_start().starts_with(name));
        found.unwrap_or_else(|| panic!("no row `{name}` in\n{text}")).split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(row("GET /nothing?x=1,2")[2..4], ["20", "20"], "{text}");
    assert_eq!(row("home")[1..3], ["20", "0"], "{text}");
    assert!(
        lab.record().report("csv").contains(",\"tag.GET /nothing?x=1,2.failed\",20,"),
        "a field with commas"
    );
    let log = std::fs::read_to_string(lab.record().trial("default", 1).join("latency.hlog")).expect("a log");
    assert!(log.contains("Tag=tag.GET%20/nothing?x%3D1%2C2.response_failed,"), "{log}");
}

#[test]
fn figures_of_steps_end_a_load_and_are_named_while_it_runs() {
    let lab = Lab::new();
    let rest = "figures:\n  broken: \"'tag.GET /nothing?x=1,2.failed'\"\n  peak memory: web.memory.max\n  all done: drain\n\
                stop_when: [\"broken > 20\"]\n";
    let plan = three_steps("users: 2\n  duration: 10m\n  think: 5ms", rest);
    let ran = lab.run(&plan, &["--plain"]);
    assert!(matches!(ran.code, Some(0 | 4)) && ran.err.contains("stopped: broken > 20"), "{ran:?}");
    let progress: Vec<&str> = ran.err.lines().filter(|line| line.contains(" in flight")).collect();
    assert!(!progress.is_empty(), "{}", ran.err);
    for name in ["broken ", "peak memory ", "all done –"] {
        assert!(progress.iter().all(|line| line.contains(name) && !line.contains("p50")), "{}", ran.err);
    }
    let end = ran.err.lines().find(|line| line.contains(" ok, ")).expect("how it ended");
    assert!(end.contains(", broken ") && end.contains(", peak memory ") && !end.contains("p50"), "{end}");
}
