//! The HTML report in a real browser: clicks, drags and keys do what they should, and nothing appears on the console.

#[path = "support/browser.rs"]
mod driver;

use std::path::{Path, PathBuf};

use driver::Browser;
use loadlab_analysis::cases::metric;
use loadlab_analysis::comparison::compare::Options;
use loadlab_analysis::comparison::differences::within;
use loadlab_analysis::findings::findings;
use loadlab_record::store::RunRecord;
use loadlab_report::document::Document;
use loadlab_report::history::{Listed, trend};
use loadlab_report::html;
use serde_json::json;

use crate::flame;
use crate::support::{Spec, component, compose, edges, large, matrix, run, scaling, spec};

fn page(name: &str, record: &RunRecord) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("browser-{name}.html"));
    std::fs::write(&file, html(&compose(record))).expect("the target folder can be written");
    file
}

/// Charts of the first case come to life one after the other as they scroll into view.
fn draw_all(browser: &mut Browser) {
    browser.value(
        "(async () => { for (const f of document.querySelectorAll('.chart')) { if (!f.offsetParent) continue; \
         f.scrollIntoView({ behavior: 'instant' }); const end = performance.now() + 20000; \
         while (!loadlab.living.has(f) && performance.now() < end) await new Promise((r) => setTimeout(r, 5)); } })()",
    );
    let left = browser.value(
        "[...document.querySelectorAll('.chart')].filter((f) => f.offsetParent && !loadlab.living.has(f)).length",
    );
    assert_eq!(left, json!(0), "charts that were never drawn");
}

const SCALES: &str = "JSON.stringify([...loadlab.living].filter(([f]) => f.dataset.group === 'case-1')\
    .map(([, u]) => [u.scales.x.min, u.scales.x.max]))";

#[test]
fn charts_zoom_and_point_in_step() {
    let mut browser = Browser::start();
    browser.open(&page("edges", &edges(2)));
    draw_all(&mut browser);
    let whole = browser.value(SCALES);
    // one zoom for all, by dragging, by button, by key
    browser.drag("[data-chart=case-1-throughput] .u-over", 150.0);
    browser.until(&format!("{SCALES} !== {}", json!(whole)));
    let all_alike = format!("new Set(JSON.parse({SCALES}).map(String)).size === 1");
    browser.until(&all_alike);
    browser.click("[data-group=case-1].chart .u-over");
    browser.click("#case-1 .tools button[title='Show all of it']");
    browser.until(&format!(
        "new Set(JSON.parse({SCALES}).map(String)).size === 1 && JSON.parse({SCALES})[0][1] > 20"
    ));
    browser.value("document.querySelector('[data-chart=case-1-cpu] .live').focus()");
    browser.key("ArrowLeft");
    browser.until("[...loadlab.living].filter(([f]) => f.dataset.group === 'case-1').every(([, u]) => u.cursor.left > 0)");
    browser.until("document.querySelector('[role=status]').textContent.includes('edge1')");
    let before = browser.value(SCALES);
    browser.key("+");
    browser.until(&format!("{SCALES} !== {}", json!(before)));
    browser.key("0");
    browser.until(&format!("JSON.parse({SCALES})[0][1] > 20"));
    // under the mouse the legend shows values and the heat map counts
    browser.hover_until(
        "[data-chart=case-1-response] .u-over",
        "document.querySelector('[data-chart=case-1-response] .at').textContent.startsWith('at ')",
    );
    browser.hover_until(
        "[data-chart=case-1-heat] .u-over",
        "/took .* to /.test(document.querySelector('[data-chart=case-1-heat] .at').textContent)",
    );
    browser.is_silent();
}

#[test]
fn lines_components_and_cases_are_picked() {
    let mut browser = Browser::start();
    browser.open(&page("edges-picked", &edges(1)));
    draw_all(&mut browser);
    let shown = "loadlab.living.get(document.querySelector('[data-chart=case-1-cpu]')).series.slice(1).filter((s) => s.show)\
        .map((s) => s.label).join()";
    let all = browser.value(shown);
    browser.click("[data-chart=case-1-cpu] .legend button");
    browser.until(&format!("{shown} !== {}", json!(all)));
    browser.click("[data-chart=case-1-cpu] .legend button");
    browser.until(&format!("{shown} === {}", json!(all)));
    browser.choose("#case-1 .tools select", "edge2");
    browser.until(&format!("{shown} === 'edge2'"));
    let memory = shown.replace("-cpu", "-memory");
    browser.until(&format!("{memory} === 'edge2'"));
    let throughput = shown.replace("-cpu", "-throughput");
    browser.until(&format!("{throughput} === 'ok'"));
    browser.choose("#case-1 .tools select", "");
    browser.until(&format!("{shown} === {}", json!(all)));
    for (width, scheme) in [(400, "dark"), (1280, "light")] {
        browser.screen((width, 3000), scheme);
        browser.value("document.querySelector('#case-3 .tools').scrollIntoView({ behavior: 'instant' })");
        browser.until("[...document.querySelectorAll('#case-3 .chart')].every((f) => loadlab.living.get(f)?.width === f.clientWidth)");
        browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("browser-case-{width}.png")));
    }
    browser.is_silent();
}

#[test]
fn tables_open_and_are_copied() {
    let mut browser = Browser::start();
    browser.open(&page("edges-tables", &edges(1)));
    draw_all(&mut browser);
    let table = "[data-chart=case-1-throughput] button[aria-expanded]";
    browser.click(table);
    browser
        .until("document.querySelectorAll('[data-chart=case-1-throughput] .values tbody tr').length === 20");
    browser.click(table);
    browser.until("!document.querySelector('[data-chart=case-1-throughput] .values')");
    for (chart, head) in [
        ("case-1-throughput", "at,ok (per_s)"),
        ("curves", "percentile,control (ms),1% CPU (ms),1% CPU + 15 MiB (ms)"),
        ("case-1-heat", "at,"),
    ] {
        browser.click(&format!("[data-chart={chart}] .copy button:last-of-type"));
        browser.until(&format!("loadlab.copied?.startsWith({})", json!(head)));
        browser.value("loadlab.copied = ''");
    }
    browser.value("document.querySelector('#all-figures details').open = true");
    browser.click("#all-figures .scroll + .copy button");
    browser.until("loadlab.copied?.startsWith('| figure | control | 1% CPU |')");
    browser.click("#figures table.figures + .copy button");
    browser.until("loadlab.copied?.startsWith('| case |') && loadlab.copied.includes('| bottleneck |')");
    browser.click("header .copy button");
    browser.until("loadlab.copied?.startsWith('# edges under limits\\n\\n3 cases') && loadlab.copied.includes('**Result.** ') && loadlab.copied.includes('| bottleneck |')");
    browser.until("document.querySelector('[role=status]').textContent === 'the answer copied as Markdown'");
    browser.is_silent();
}

/// The maximum size of a report of twelve cases of ten minutes with ten components: small enough to mail.
const MOST_BYTES: u64 = 1_500_000;

#[test]
fn many_cases_are_shown_one_at_a_time() {
    let mut browser = Browser::start();
    let file = page("twelve", &large(12, 600, 10));
    let bytes = std::fs::metadata(&file).expect("the page").len();
    assert!(bytes <= MOST_BYTES, "{bytes} bytes");
    browser.open(&file);
    let shown = "[...document.querySelectorAll('section.case')].filter((s) => s.offsetParent).map((s) => s.id).join()";
    browser.until(&format!("{shown} === 'case-1'"));
    browser.click("#picker button[data-step='1']");
    browser.until(&format!("{shown} === 'case-2' && location.hash === '#case-2'"));
    draw_all(&mut browser);
    browser.click("#picker button[data-step='-1']");
    browser.click("#picker button[data-step='-1']");
    browser.until(&format!("{shown} === 'case-12'"));
    browser.choose("#picker select", "");
    browser.until(&format!("{shown}.split(',').length === 12"));
    browser.value("location.hash = '#case-7'");
    browser.until(&format!("{shown} === 'case-7'"));
    draw_all(&mut browser);
    browser.is_silent();
}

#[test]
fn it_is_whole_on_every_screen() {
    let mut browser = Browser::start();
    let few = Spec { seconds: 1, ..spec("one second", 3, 5, 20.0) };
    let silent = Spec {
        rate: 0,
        components: (0..300).map(|i| component(&format!("shard-{i:03}"), 0.01, 1 << 20)).collect(),
        ..spec("zero requests, 300 components", 5, 0, 1.0)
    };
    let failing = Spec {
        fail_every: 1,
        ..spec(
            "all failed: a-name-without-any-blank-in-it-that-goes-on-and-on-and-on-and-on-for-longer-than-a-screen-is-wide",
            3,
            40,
            20.0,
        )
    };
    let ugly = run("ugly", &[few, silent, failing], 2, &["p99 < 2s"]);
    for (name, record) in [("edges-screens", edges(3)), ("ugly", ugly), ("long", large(12, 30, 10))] {
        let file = page(name, &record);
        for (size, scheme) in [((400, 900), "light"), ((1280, 900), "dark"), ((1920, 1080), "light")] {
            browser.screen(size, scheme);
            browser.open(&file);
            draw_all(&mut browser);
            let wide =
                browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert_eq!(wide, json!(0), "{name} at {size:?} scrolls sideways");
            browser.value("scrollTo({ top: 0, behavior: 'instant' })");
            let picture = format!("browser-{name}-{}-{scheme}.png", size.0);
            browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join(picture));
        }
    }
    browser.is_silent();
}

/// Thirty cases of two axes.
fn thirty() -> RunRecord {
    let (sizes, users) = ([1.0, 10.0, 100.0, 1000.0, 10_000.0], [1, 2, 5, 10, 20, 50]);
    let axes: [(&str, &[&str]); 2] =
        [("size", &["1", "10", "100", "1000", "10000"]), ("users", &["1", "2", "5", "10", "20", "50"])];
    matrix(&axes, 1, &["p50 < 50ms"], |point| {
        let users = users[point[1]];
        Spec { seconds: 4, ..spec("", users, 20 + users, 2.0 + sizes[point[0]] / 50.0) }
    })
}

/// Text boxes that overlap one another, or overflow; as words.
const CROWDED: &str = "(() => {
    const bad = [];
    const boxes = [...document.querySelectorAll('.node, .arrows, .figures td, .figures th, .answer div, h1, .sub, .tabs')]
        .filter((e) => e.offsetParent);
    for (const e of boxes) {
        if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline')
            bad.push(`${e.className || e.tagName} is too narrow: ${e.textContent.slice(0, 40)}`);
    }
    const solid = boxes.filter((e) => e.matches('.node, .answer div, h1, .sub')).map((e) => [e, e.getBoundingClientRect()]);
    for (const [a, r] of solid) for (const [b, s] of solid) {
        if (a === b || a.contains(b) || b.contains(a)) continue;
        if (r.left < s.right - 1 && s.left < r.right - 1 && r.top < s.bottom - 1 && s.top < r.bottom - 1)
            bad.push(`${a.textContent.slice(0, 30)} is over ${b.textContent.slice(0, 30)}`);
    }
    return bad;
})()";

#[test]
fn the_first_screen_holds_the_answer() {
    let mut browser = Browser::start();
    let crowd: Vec<_> = (0..60).map(|i| component(&format!("shard-{i:02}"), 0.02, 1 << 20)).collect();
    let long_name = "an axis value of eighty characters that goes on and on and on, to the very end of it";
    let named = [spec(&format!("{long_name}, a"), 4, 50, 8.0), spec(&format!("{long_name}, b"), 4, 50, 8.0)];
    let shards = Spec { components: crowd, ..spec("sixty", 4, 50, 8.0) };
    let all_failed = Spec { fail_every: 1, ..spec("all failed", 4, 50, 8.0) };
    let records = [
        ("first-edges", edges(3)),
        ("first-matrix", thirty()),
        ("first-failed", run("failed", &[all_failed], 1, &["errors < 1%"])),
        ("first-sixty", run("sixty", &[shards], 1, &[])),
        ("first-names", run("long names", &named, 1, &["p99 < 2s"])),
    ];
    for (name, record) in records {
        let file = page(name, &record);
        for (size, scheme) in [((1280, 900), "light"), ((420, 900), "light"), ((1280, 900), "dark")] {
            browser.screen(size, scheme);
            browser.open(&file);
            browser.value("scrollTo({ top: 0, behavior: 'instant' })");
            let picture = format!("browser-{name}-{}-{scheme}.png", size.0);
            browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join(picture));
            assert_eq!(browser.value(CROWDED), json!([]), "{name} at {size:?}");
            let wide =
                browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert_eq!(wide, json!(0), "{name} at {size:?} scrolls sideways");
            if size.0 == 1280 && name != "first-matrix" && name != "first-sixty" {
                for wanted in
                    ["h1 .badge", ".answer dt:nth-of-type(1)", ".node:not(.generator)", "#figures td .v"]
                {
                    let top =
                        format!("document.querySelector('{wanted}').getBoundingClientRect().bottom <= 900");
                    assert_eq!(
                        browser.value(&top),
                        json!(true),
                        "{wanted} of {name} is below the first screen"
                    );
                }
                assert_eq!(
                    browser.value("[...document.querySelectorAll('.answer dt')].some((d) => d.textContent === 'First bottleneck')"),
                    json!(true)
                );
            }
        }
    }
    browser.is_silent();
}

/// The layout of charts: what overlaps or overflows, and how many are side by side at most; as words.
const LAID_OUT: &str = "(() => {
    const bad = [];
    const box = (e) => e.getBoundingClientRect();
    const meet = (r, s) => r.left < s.right - 1 && s.left < r.right - 1 && r.top < s.bottom - 1 && s.top < r.bottom - 1;
    let abreast = 0;
    for (const grid of document.querySelectorAll('.multiples')) {
        if (!grid.offsetParent) continue;
        const figures = [...grid.children];
        const rows = new Map();
        for (const f of figures) {
            const r = box(f);
            rows.set(Math.round(r.top), (rows.get(Math.round(r.top)) || 0) + 1);
            if (r.right > innerWidth + 1 || r.left < -1) bad.push(`${f.textContent.slice(0, 30)} is out of the page`);
            for (const g of figures) if (f !== g && meet(r, box(g))) bad.push(`${f.textContent.slice(0, 30)} is over another`);
            const parts = [...f.querySelectorAll(':scope > *')].filter((e) => e.offsetParent && box(e).height > 0);
            for (const a of parts) for (const b of parts) if (a !== b && meet(box(a), box(b)))
                bad.push(`${f.textContent.slice(0, 30)}: ${a.className || a.tagName} is over ${b.className || b.tagName}`);
            for (const e of parts) if (box(e).right > r.right + 1 || box(e).left < r.left - 1)
                bad.push(`${f.textContent.slice(0, 30)}: ${e.className || e.tagName} is out of it`);
            for (const axis of ['x', 'y']) {
                const labels = [...f.querySelectorAll(`.field .${axis}`)];
                for (const a of labels) {
                    if (box(a).right > innerWidth || box(a).left < 0) bad.push(`${a.textContent} is out of the page`);
                    for (const b of labels) if (a !== b && (meet(box(a), box(b)) || a.textContent === b.textContent))
                        bad.push(`labels ${a.textContent} and ${b.textContent}`);
                }
            }
        }
        abreast = Math.max(abreast, ...rows.values());
    }
    return [abreast, bad];
})()";

#[test]
fn small_multiples_lie_side_by_side() {
    let mut browser = Browser::start();
    let crowd: Vec<_> = (0..60)
        .map(|i| {
            component(&format!("shard-{i:02} of a store with a long name"), 0.02 * f64::from(i % 7), 1 << 24)
        })
        .collect();
    let long = "a value of eighty characters that goes on and on and on and on, to the very end";
    let axes: [(&str, &[&str]); 2] =
        [("delay", &["0", "250us", "1ms", "1500us", "2500us"]), ("by", &[long, "b", "c"])];
    let records = [
        ("edges", edges(2)),
        (
            "sixty",
            run("sixty", &[Spec { components: crowd, fail_every: 9, ..spec("sixty", 4, 50, 8.0) }], 1, &[]),
        ),
        ("thirty", thirty()),
        (
            "named",
            matrix(&axes, 2, &["p50 < 30ms"], |p| Spec {
                seconds: 3,
                ..spec("", 4, 50, 4.0 * (p[0] + p[1] + 1) as f64)
            }),
        ),
    ];
    for (name, record) in records {
        let file = page(&format!("multiples-{name}"), &record);
        for ((width, scheme), least) in
            [((1280, "light"), 2), ((420, "light"), 1), ((420, "dark"), 1), ((1000, "dark"), 2)]
        {
            browser.screen((width, 1400), scheme);
            browser.open(&file);
            draw_all(&mut browser);
            let found = browser.value(LAID_OUT);
            assert_eq!(found[1], json!([]), "{name} at {width}");
            let abreast = found[0].as_u64().unwrap_or(0);
            assert!(
                if width == 420 { abreast == 1 } else { abreast >= least },
                "{name} at {width}: {abreast} abreast"
            );
            let wide =
                browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert_eq!(wide, json!(0), "{name} at {width} scrolls sideways");
            browser.value("document.querySelector('.multiples').scrollIntoView({ behavior: 'instant' })");
            browser.picture(
                &Path::new(env!("CARGO_TARGET_TMPDIR"))
                    .join(format!("browser-multiples-{name}-{width}-{scheme}.png")),
            );
        }
        // a case's charts fit in two screens
        browser.screen((1280, 900), "light");
        browser.open(&file);
        draw_all(&mut browser);
        let height = browser.value(
            "(() => { const all = [...document.querySelectorAll('#case-1 .multiples')]; const end = all[all.length - 1].getBoundingClientRect().bottom; \
             return end - all[0].getBoundingClientRect().top; })()",
        );
        assert!(height.as_f64().is_some_and(|h| h <= 1800.0), "charts of {name} are {height} high");
    }
    browser.is_silent();
}

#[test]
fn all_charts_of_a_case_have_one_time_axis() {
    let mut browser = Browser::start();
    browser.open(&page("one-axis", &edges(1)));
    draw_all(&mut browser);
    let scales = format!("new Set(JSON.parse({SCALES}).map(String)).size");
    assert_eq!(browser.value(&scales), json!(1));
    assert_eq!(browser.value(&format!("JSON.parse({SCALES})[0][0]")), json!(0), "it begins with the load");
    // hovering moves nothing
    let tops = "JSON.stringify([...document.querySelectorAll('#case-1 .chart')].map((f) => f.offsetTop))";
    let before = browser.value(tops);
    browser.hover_until(
        "[data-chart=case-1-response] .u-over",
        "document.querySelector('[data-chart=case-1-response] .at').textContent.startsWith('at ')",
    );
    assert_eq!(browser.value(tops), before);
    browser.is_silent();
}

#[test]
fn an_hour_is_drawn_and_its_data_unpacked() {
    let mut browser = Browser::start();
    browser.screen((1280, 900), "light");
    browser.open(&page("hour", &large(1, 3600, 10)));
    draw_all(&mut browser);
    let (ready, charts) =
        (browser.value("Math.round(loadlab.readyMs)"), browser.value("loadlab.living.size"));
    eprintln!("ready after {ready} ms, {charts} charts");
    assert!(charts.as_u64() > Some(6), "{charts}");
    // each value is present, from the first to the last minute
    let drawn = "(() => { const u = loadlab.living.get(document.querySelector('[data-chart=case-1-cpu]')); \
                 return [u.data.length, u.data[0].length, u.data[1].filter((v) => v > 0).length]; })()";
    let drawn = browser.value(drawn);
    assert!(drawn[0].as_u64() > Some(10) && drawn[1].as_u64() > Some(500), "{drawn}");
    assert!(drawn[2].as_u64() >= drawn[1].as_u64().map(|n| n - 2), "{drawn}");
    browser.value(
        "document.querySelector('[data-chart=case-1-response]').scrollIntoView({ behavior: 'instant' })",
    );
    browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser-hour.png"));
    browser.is_silent();
}

/// Pictures of one part of a page on every screen and on paper, for inspection.
fn pictures(browser: &mut Browser, name: &str, selector: &str) {
    for (width, scheme, medium) in [
        (400, "light", ""),
        (400, "dark", ""),
        (1600, "dark", ""),
        (1600, "light", ""),
        (1000, "light", "print"),
    ] {
        browser.screen((width, 1400), scheme);
        browser.call(
            "Emulation.setEmulatedMedia",
            json!({
                "media": medium, "features": [{ "name": "prefers-color-scheme", "value": scheme }]
            }),
        );
        browser.value(&format!(
            "document.querySelector('{selector}').scrollIntoView({{ behavior: 'instant' }})"
        ));
        let sideways =
            browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        // Paper has no fixed width here.
        assert!(
            medium == "print" || sideways == json!(0),
            "{name} at {width} scrolls sideways by {sideways}"
        );
        let file = format!("browser-{name}-{width}-{scheme}{medium}.png");
        browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join(file));
    }
    browser.screen((1280, 900), "light");
}

#[test]
fn points_in_a_plane_are_gone_through_by_key_and_by_mouse() {
    let mut browser = Browser::start();
    browser.open(&page("scaling", &scaling(5)));
    let said = "document.querySelector('[role=status]').textContent";
    let at = "document.querySelector('#scalability .plane .at').textContent";
    browser.value("document.querySelector('#scalability .plane .field').focus()");
    browser.key("ArrowRight");
    browser.until(&format!("{said}.startsWith('1 user: goodput ') && {at} === {said}"));
    browser.key("ArrowRight");
    browser.until(&format!("{said}.startsWith('2 users: ')"));
    browser.key("End");
    browser.until(&format!("{said}.startsWith('128 users: ')"));
    browser.key("ArrowRight");
    browser.key("Escape");
    browser.until(&format!("{at} === ''"));
    // a point of a chart over a numeric axis leads to its case
    browser.value("document.querySelector('#cases .plane .field, #figures .plane .field').focus()");
    browser.key("End");
    browser.key("Enter");
    browser.until("location.hash === '#case-8'");
    // the second drawing has two groups
    browser.value("document.querySelectorAll('#scalability .plane .field')[1].focus()");
    browser.key("Home");
    browser.until(&format!("{said}.startsWith('1 user: p50 ') && {said}.includes(' at ')"));
    browser.key("ArrowDown");
    browser.until(&format!("{said}.includes(': p99 ')"));
    browser.hover_until(
        "#scalability .plane .dot:nth-of-type(3)",
        &format!("{at}.startsWith('4 users: goodput ')"),
    );
    let named = "[...document.querySelectorAll('.plane .field')].every((f) => f.tabIndex === 0 && f.getAttribute('role') === \
                 'application' && /the table (below|above)/.test(f.getAttribute('aria-label')))";
    assert_eq!(browser.value(named), json!(true));
    pictures(&mut browser, "scaling", "#scalability");
    browser.is_silent();
}

#[test]
fn comparisons_are_drawn_and_copied() {
    let mut browser = Browser::start();
    let record = edges(6);
    browser.open(&page("compared", &record));
    browser.click("#figures .ratios .copy button");
    browser.until("loadlab.copied?.startsWith('| figure | verdict | ratio |')");
    browser.until("loadlab.copied.includes('| goodput | worse | 0.')");
    pictures(&mut browser, "compared", "#figures .ratios");
    // the document of `loadlab compare`
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser-compare.html");
    let record = record.into();
    let found = findings(&record);
    let document =
        loadlab_report::compared(&within(&found.cases, &found.pairs, found.comparing(Options::default())));
    std::fs::write(&file, html(&document)).expect("the target folder can be written");
    browser.open(&file);
    browser.click("header .copy button");
    browser.until("loadlab.copied?.includes('**1% CPU.** worse: goodput ')");
    assert_eq!(browser.value("loadlab.copied.includes('| case |')"), json!(false));
    pictures(&mut browser, "compare", "header");
    browser.is_silent();
}

#[test]
fn a_trend_is_gone_through_from_run_to_run() {
    let mut browser = Browser::start();
    let of = |day: u32| {
        let p50_ms = 8.0 + if day > 21 { 3.0 } else { 0.0 } + f64::from(day % 5) / 4.0;
        let specs = [spec("10 users", 10, 80, p50_ms), spec("100 users", 100, 160, 4.0 * p50_ms)];
        let mut record = run("checkout", &specs, 3, &["p95 < 100ms"]);
        record.manifest.started = format!("2026-11-{day:02}T09:30:00Z");
        Listed { name: format!("checkout-202611{day:02}-093000"), run: record.into(), baseline: day == 12 }
    };
    let runs: Vec<Listed> = (10..28).rev().map(of).collect();
    let metrics = ["p50", "goodput"].map(|id| metric::named(id).expect("a figure"));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser-trend.html");
    std::fs::write(&file, html(&trend(&runs, &metrics, &|_| true)))
        .expect("the target folder can be written");
    browser.open(&file);
    let said = "document.querySelector('[role=status]').textContent";
    browser.value("document.querySelector('.plane .field').focus()");
    browser.key("End");
    browser.until(&format!("{said}.startsWith('checkout-20261127-093000: p50 ')"));
    browser.key("ArrowLeft");
    browser.until(&format!("{said}.startsWith('checkout-20261126-093000: p50 ')"));
    browser.click("#trend-1 .scroll + .copy button");
    browser.until("loadlab.copied?.startsWith('| run | started | verdict | trials | p50 | goodput |')");
    pictures(&mut browser, "trend", "#trend-1");
    browser.is_silent();
}

/// The page with a flame graph by hand.
fn flame_page(name: &str, document: &Document) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("browser-{name}.html"));
    std::fs::write(&file, html(document)).expect("the target folder can be written");
    file
}

/// Frames that are not where their samples say, below or beside their caller; as words.
const STACKED: &str = "(() => {
    const bad = [];
    const box = (e) => e.getBoundingClientRect();
    const rows = new Map();
    for (const e of document.querySelectorAll('.frame')) {
        const r = box(e);
        const level = Number(e.getAttribute('aria-level'));
        if (!rows.has(level)) rows.set(level, []);
        rows.get(level).push(r);
        const callers = rows.get(level - 1) ?? [];
        if (level > 1 && !callers.some((c) => c.left <= r.left + 0.6 && r.right <= c.right + 0.6))
            bad.push(`${e.ariaLabel} sticks out of its caller`);
        if (level > 1 && Math.abs(callers[0].top - r.bottom) > 0.6) bad.push(`${e.ariaLabel} is not on its caller`);
        if (e.textContent === '' && r.width > 20) bad.push(`${e.ariaLabel} has no label`);
    }
    for (const row of rows.values()) for (let i = 1; i < row.length; i += 1)
        if (row[i].left < row[i - 1].right - 0.6) bad.push(`something is over its neighbour in a row of ${row.length}`);
    return bad;
})()";

/// Searches for a text.
fn seeking(text: &str) -> String {
    let text = json!(text);
    format!(
        "(() => {{ const s = document.querySelector('.flame input'); s.value = {text}; s.dispatchEvent(new Event('input')); }})()"
    )
}

#[test]
fn flame_graphs_are_whole_on_every_screen() {
    let mut browser = Browser::start();
    let documents = [
        ("flame", flame::plain(flame::SERVER)),
        ("flame-compared", flame::by_hand(flame::SERVER)),
        ("flame-deep", flame::deep()),
    ];
    for (name, document) in documents {
        let file = flame_page(name, &document);
        for width in [360, 1600] {
            browser.screen((width, 900), "light");
            browser.open(&file);
            browser.until("document.querySelectorAll('.frame').length > 10");
            assert_eq!(browser.value(STACKED), json!([]), "{name} at {width}");
            let wide =
                browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert_eq!(wide, json!(0), "{name} at {width} scrolls sideways");
            // the whole is seen first, however deep the graph
            let seen = "(() => { const [a, b] = ['.frames', '.frame.whole, .frame.same'].map((s) => \
                        document.querySelector(s).getBoundingClientRect()); \
                        return a.height < 600 && a.top < b.top && b.bottom < a.bottom; })()";
            assert_eq!(browser.value(seen), json!(true), "{name} at {width}");
        }
        for (scheme, text) in [("light", ""), ("dark", ""), ("light", "e"), ("dark", "e")] {
            browser.screen((1280, 900), scheme);
            browser.value(&seeking(text));
            assert_eq!(browser.value(PALE), json!([]), "{name}, {scheme}, searched for {text:?}");
        }
        browser.value(&seeking("e"));
        pictures(&mut browser, &format!("{name}-searched"), ".flame");
        browser.value(&seeking(""));
        pictures(&mut browser, name, ".flame");
    }
    browser.is_silent();
}

/// What was there before, however little of it, is not new, and shares are compared, not counts.
#[test]
fn flame_graphs_compare_shares() {
    let stacks: &[flame::Stack<'_>] = &[
        (&["parse"], 40, Some(8_000)),
        (&["rare"], 30, Some(1)),
        (&["none"], 30, Some(0)),
        (&["gone"], 0, Some(1_999)),
    ];
    let mut browser = Browser::start();
    browser.open(&flame_page("flame-shares", &flame::by_hand(stacks)));
    browser.until("document.querySelectorAll('.frame').length > 3");
    let mut words = |name: &str| {
        browser.value(&format!(
            "(() => {{ const frame = document.querySelector('.frame[aria-label={name}]'); \
             frame.dispatchEvent(new PointerEvent('pointerover', {{ bubbles: true }})); \
             return document.querySelector('.flame .on').textContent; }})()"
        ))
    };
    assert_eq!(
        words("parse"),
        json!("parse 40 samples, 40 % of all, −50 % against 80 % before (8,000 samples)")
    );
    let rare = words("rare");
    assert!(
        rare.as_str().is_some_and(|text| text.ends_with(" against 0.0100 % before (1 sample)")),
        "{rare}"
    );
    assert_eq!(words("none"), json!("none 30 samples, 30 % of all, new: not there before"));
    browser.is_silent();
}

/// Frames whose label has less than the contrast of 4.5 to 1 that small text needs; as words.
const PALE: &str = "(() => {
    const bright = (text) => {
        const scale = text.startsWith('color(srgb') ? 1 : 255;
        const [r, g, b] = text.match(/[\\d.]+/g).map((v) => v / scale).map((c) =>
            c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
    };
    return [...document.querySelectorAll('.frame')].filter((e) => e.textContent).flatMap((e) => {
        const style = getComputedStyle(e);
        const [a, b] = [style.color, style.backgroundColor].map(bright);
        const contrast = Math.max(a, b) / Math.min(a, b);
        return contrast >= 4.5 ? [] : [`${e.className}: ${contrast}`];
    });
})()";

const FOCUSED: &str = "document.activeElement.ariaLabel";
const ZOOMED: &str = "[...document.querySelectorAll('.frame:not(.under)')].at(0).ariaLabel.split(': ')[0]";

#[test]
fn flame_graphs_are_zoomed_and_searched() {
    let mut browser = Browser::start();
    browser.open(&flame_page("flame-used", &flame::plain(flame::SERVER)));
    let frame = |name: &str| format!(".frame[aria-label^='{name}']");
    let text = "document.querySelector('.flame .on').textContent";
    browser.until("document.querySelectorAll('.frame').length === 23");
    assert_eq!(browser.value("document.querySelector('.flame details').open"), json!(false));
    assert_eq!(
        browser.value("document.querySelectorAll('.frames b').length"),
        json!(0),
        "a name is an element"
    );
    browser
        .hover_until(&frame("</script><b>"), &format!("{text} === '</script><b> 20 samples, 3.17 % of all'"));
    // a long name is shown in full, and neither it nor its frame stretches the page
    browser.screen((360, 900), "light");
    browser.hover_until(&frame("core::ops"), &format!("{text}.includes('without_a_blank 90 samples, ')"));
    browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser-flame-long.png"));
    let wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
    assert_eq!(browser.value(wide), json!(0));
    browser.screen((1280, 900), "light");
    // a click zooms in, a click on a caller further out, Escape and the button to the whole
    browser.click(&frame("app::checkout"));
    browser.until(&format!("{ZOOMED} === 'app::checkout'"));
    browser.until("document.querySelector('[role=status]').textContent === 'Zoomed to app::checkout'");
    browser
        .until(&format!("{text} === 'app::checkout 290 samples, 46.0 % of all, 100 % of the zoomed frame'"));
    assert_eq!(browser.value("document.querySelectorAll('.frame.under').length"), json!(4));
    assert_eq!(browser.value(STACKED), json!([]));
    browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser-flame-zoomed.png"));
    // on paper it is whole
    browser.value("dispatchEvent(new Event('beforeprint'))");
    assert_eq!(browser.value("document.querySelectorAll('.frame').length"), json!(23));
    browser.value("dispatchEvent(new Event('afterprint'))");
    assert_eq!(browser.value(ZOOMED), json!("app::checkout"));
    browser.click(&frame("hyper::serve"));
    browser.until(&format!("{ZOOMED} === 'hyper::serve'"));
    browser.key("Escape");
    browser.until(&format!("{ZOOMED} === 'all' && {FOCUSED} === 'hyper::serve'"));
    browser.click(&frame("write"));
    browser.click(".flame button");
    browser.until(&format!("{ZOOMED} === 'all' && document.querySelector('.flame button').disabled"));
    // each stack counts once
    let found = "document.querySelector('.flame .found').textContent";
    browser.click(".flame input");
    browser.call("Input.insertText", json!({ "text": "[KERNEL]" }));
    browser.until(&format!("{found} === '5 frames match: 30.2 % of samples'"));
    assert_eq!(browser.value("document.querySelectorAll('.searched .frame.hit').length"), json!(5));
    browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser-flame-searched.png"));
    browser.value("document.querySelector('.flame input').select()");
    browser.call("Input.insertText", json!({ "text": "vec<t>" }));
    browser.until(&format!("{found} === '1 frame matches: 9.68 % of samples'"));
    browser.call("Input.insertText", json!({ "text": "?" }));
    browser.until(&format!("{found} === 'nothing matches'"));
    // Escape in a field that is not empty leaves the zoom alone
    browser.click(&frame("write"));
    browser.until(&format!("{ZOOMED} === 'write'"));
    browser.value("document.querySelector('.flame input').focus()");
    browser.key("Escape");
    assert_eq!(browser.value(ZOOMED), json!("write"));
    browser.value(&seeking(""));
    browser.until(&format!("{found} === '' && !document.querySelector('.searched')"));
    browser.key("Escape");
    browser.until(&format!("{ZOOMED} === 'all' && document.activeElement.type === 'search'"));
    browser.is_silent();
}

#[test]
fn flame_graphs_are_gone_through_by_key() {
    let mut browser = Browser::start();
    browser.open(&flame_page("flame-keys", &flame::plain(flame::SERVER)));
    browser.until("document.querySelectorAll('.frame').length === 23");
    let only = "document.querySelectorAll('.frame[tabindex=\"0\"]').length";
    assert_eq!(browser.value(only), json!(1), "one stop of the Tab key");
    browser.value("document.querySelector('.frame[tabindex=\"0\"]').focus()");
    for (key, name) in [
        ("ArrowUp", "start_thread: 590 samples, 93.7 % of all"),
        ("ArrowRight", "[incomplete]: 39 samples, 6.19 % of all"),
        ("ArrowRight", "main: 1 sample, 0.159 % of all"),
        ("ArrowRight", "main: 1 sample, 0.159 % of all"),
        ("ArrowLeft", "[incomplete]: "),
        ("ArrowUp", "[unknown]: "),
        ("ArrowDown", "[incomplete]: "),
        ("ArrowLeft", "start_thread: "),
        ("ArrowUp", "tokio::runtime::worker::run: "),
        ("ArrowUp", "hyper::serve: 400 samples, "),
        ("ArrowRight", "write: "),
        ("Home", "all: 630 samples, 100 % of all"),
        ("ArrowDown", "all: "),
    ] {
        browser.key(key);
        browser.until(&format!("{FOCUSED}.startsWith({})", json!(name)));
        assert_eq!(browser.value(only), json!(1), "after {key}");
    }
    browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser-flame-focus.png"));
    for _ in 0..4 {
        browser.key("ArrowUp");
    }
    browser.key("Enter");
    browser.until(&format!("{ZOOMED} === 'app::checkout' && {FOCUSED} === 'app::checkout'"));
    browser.key("ArrowDown");
    browser.key(" ");
    browser.until(&format!("{ZOOMED} === 'hyper::serve'"));
    browser.key("Escape");
    browser.until(&format!("{ZOOMED} === 'all' && {FOCUSED} === 'hyper::serve'"));
    // in a deep graph the box follows the focus
    browser.open(&flame_page("flame-deep-keys", &flame::deep()));
    browser.until("document.querySelectorAll('.frame').length > 150");
    browser.value("document.querySelector('.frame[tabindex=\"0\"]').focus()");
    for _ in 0..100 {
        browser.key("ArrowUp");
    }
    browser.until(&format!("{FOCUSED}.startsWith('visit::<100>: ')"));
    let inside = "(() => { const [a, b] = [document.querySelector('.frames'), document.activeElement].map((e) => \
                  e.getBoundingClientRect()); return a.top <= b.top && b.bottom <= a.bottom; })()";
    assert_eq!(browser.value(inside), json!(true));
    browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser-flame-deep-focus.png"));
    browser.is_silent();
}
