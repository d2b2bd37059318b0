//! Flame graphs in every format, with names as ugly as programs can have them.

use loadlab_record::documents::summary::Verdict;
use loadlab_report::document::{Block, Cell, Document, Flame, FlameNode, FlameUnit, Section, Table};
use loadlab_report::terminal::width_of;
use loadlab_report::{html, markdown, text};

/// Names from the outermost, samples, samples before.
pub(crate) type Stack<'a> = (&'a [&'a str], u64, Option<u64>);

/// A document with one flame graph. Stacks that share callers are neighbours.
pub(crate) fn by_hand(stacks: &[Stack<'_>]) -> Document {
    let mut names = vec!["all".to_owned()];
    let mut nodes: Vec<FlameNode> = Vec::new();
    let mut path: Vec<usize> = Vec::new();
    for (stack, samples, before) in stacks {
        for (depth, name) in std::iter::once(&"all").chain(*stack).enumerate() {
            let index = names.iter().position(|n| n == name).unwrap_or_else(|| {
                names.push((*name).to_owned());
                names.len() - 1
            });
            let number = |n: usize| u32::try_from(n).expect("a few");
            if path.get(depth).is_none_or(|at| nodes[*at].name != number(index)) {
                path.truncate(depth);
                path.push(nodes.len());
                let before = before.map(|_| 0);
                nodes.push(FlameNode { depth: number(depth), name: number(index), samples: 0, before });
            }
            let node = &mut nodes[path[depth]];
            node.samples += samples;
            node.before = node.before.zip(*before).map(|(sum, more)| sum + more);
        }
        path.truncate(stack.len() + 1);
    }
    document(names, nodes)
}

fn document(names: Vec<String>, nodes: Vec<FlameNode>) -> Document {
    let mut order: Vec<&FlameNode> = nodes.iter().skip(1).collect();
    order.sort_by_key(|n| std::cmp::Reverse(n.samples));
    let row = |n: &&FlameNode| vec![Cell::new(&names[n.name as usize]), Cell::new(n.samples.to_string())];
    let hottest = Table {
        caption: "Hottest functions".into(),
        head: vec!["function".into(), "samples".into()],
        text_columns: Vec::new(),
        rows: order.iter().take(30).map(row).collect(),
        note: Some("Samples of a function and of what it calls.".into()),
    };
    let title = "Where the CPU time went".to_owned();
    let note = Some("997 samples in a second and thread.".to_owned());
    let unit = FlameUnit::Samples;
    let flame = Flame { id: "flame-1".into(), title, unit, names, nodes, hottest, note };
    let section = Section {
        id: "profile".into(),
        title: "Profile".into(),
        case: None,
        is_folded: false,
        blocks: vec![Block::Flame(flame)],
    };
    Document {
        is_brief: false,
        title: "by hand".into(),
        subtitle: String::new(),
        answer: Vec::new(),
        verdict: Verdict::None,
        cases: Vec::new(),
        sections: vec![section],
    }
}

/// What a small server does.
pub(crate) const SERVER: &[Stack<'_>] = &[
    (
        &[
            "start_thread",
            "tokio::runtime::worker::run",
            "hyper::serve",
            "app::checkout",
            "serde_json::to_vec",
        ],
        180,
        Some(120),
    ),
    (
        &[
            "start_thread",
            "tokio::runtime::worker::run",
            "hyper::serve",
            "app::checkout",
            "std::vec::Vec<T>::push",
            "__rust_realloc",
        ],
        61,
        Some(60),
    ),
    (
        &[
            "start_thread",
            "tokio::runtime::worker::run",
            "hyper::serve",
            "app::checkout",
            "Größe::berechne_Überhang",
        ],
        40,
        Some(44),
    ),
    (&["start_thread", "tokio::runtime::worker::run", "hyper::serve", "app::checkout"], 9, Some(9)),
    (&["start_thread", "tokio::runtime::worker::run", "hyper::serve", LONG], 90, Some(161)),
    (&["start_thread", "tokio::runtime::worker::run", "hyper::serve", "</script><b>"], 20, Some(0)),
    (
        &[
            "start_thread",
            "tokio::runtime::worker::run",
            "write",
            "entry_SYSCALL_64 [kernel]",
            "ksys_write [kernel]",
            "tcp_sendmsg [kernel]",
        ],
        130,
        Some(125),
    ),
    (
        &[
            "start_thread",
            "tokio::runtime::worker::run",
            "write",
            "entry_SYSCALL_64 [kernel]",
            "ksys_write [kernel]",
        ],
        12,
        Some(11),
    ),
    (
        &[
            "start_thread",
            "tokio::runtime::worker::run",
            "epoll_wait",
            "entry_SYSCALL_64 [kernel]",
            "do_epoll_wait [kernel]",
        ],
        48,
        Some(60),
    ),
    (&["[incomplete]", "[unknown]"], 37, Some(37)),
    (&["[incomplete]", "memcpy"], 2, Some(2)),
    (&["main", "std::rt::lang_start"], 1, Some(1)),
];

/// Longer than any screen is wide.
pub(crate) const LONG: &str = "core::ops::function::impls::<impl core::ops::function::FnOnce<A> for &mut \
    core::iter::adapters::map::Map<alloc::vec::into_iter::IntoIter<alloc::string::String>, \
    app::catalogue::search::rank::{{closure}}::{{closure}}>>::call_once_with_a_very_long_name_that_goes_on_and_on_and_on_without_a_blank";

/// As [`by_hand`], without anything to compare.
pub(crate) fn plain(stacks: &[Stack<'_>]) -> Document {
    let alone: Vec<Stack<'_>> = stacks.iter().map(|(stack, samples, _)| (*stack, *samples, None)).collect();
    by_hand(&alone)
}

/// A recursion many rows high, with many small functions at every step, as deep programs have them.
pub(crate) fn deep() -> Document {
    let mut names = vec!["all".to_owned()];
    let mut nodes = vec![FlameNode { depth: 0, name: 0, samples: 100_000, before: None }];
    for depth in 1..=150 {
        names.push(format!("visit::<{depth}>"));
        nodes.push(FlameNode { depth, name: depth, samples: 100_000 - u64::from(depth) * 600, before: None });
    }
    // what each calls besides the next comes after it, from the innermost outwards
    for depth in (1..=150).rev() {
        nodes.extend((0..40).map(|i| FlameNode { depth: depth + 1, name: 1 + i, samples: 15, before: None }));
    }
    document(names, nodes)
}

#[test]
fn no_name_becomes_markup() {
    for document in [plain(SERVER), by_hand(SERVER)] {
        let page = html(&document);
        for markup in ["</script><b>", "<b>", "<T>", "<A>"] {
            assert!(!page.contains(markup), "a name is markup: {markup}");
        }
        assert_eq!(page.matches("<script").count(), page.matches("</script>").count());
        // in the table, and in the data
        assert!(page.contains("<th scope=\"row\">&lt;/script&gt;&lt;b&gt;</th>"), "no such row");
        assert!(page.contains("\"\\u003c/script\\u003e\\u003cb\\u003e\""), "no such name");
        assert!(page.contains("std::vec::Vec&lt;T&gt;::push") && page.contains("Vec\\u003cT\\u003e::push"));
        assert!(page.contains("\"Größe::berechne_Überhang\""), "no such name");
    }
    let turned = plain(&[(&["a\u{202e}b\n\u{7}", "\"'&\\"], 1, None)]);
    for form in [html(&turned), markdown(&turned), text(&turned, 80, false)] {
        assert!(
            !form.contains('\u{202e}') && !form.contains('\u{7}'),
            "a direction was turned, or a bell rang"
        );
    }
    assert!(html(&turned).contains("[\"all\",\"a\u{fffd}b \u{fffd}\",\"\\\"'\\u0026\\\\\"]"));
}

#[test]
fn a_page_holds_the_data_for_its_script_and_a_table_without_it() {
    let page = html(&plain(&SERVER[..2]));
    let stage = page.find("<div class=\"stage\" hidden>").expect("a stage that waits for the script");
    let table = page.find("<details open>\n<summary>As a table</summary>").expect("an open table");
    assert!(stage < table && page.contains("role=\"tree\" aria-label=\"Where the CPU time went. Arrow up "));
    assert!(page.contains("\"nodes\":[0,0,241,1,1,241,2,2,241,3,3,241,4,4,241,5,5,180,5,6,61,6,7,61]"));
    assert!(page.contains("\"compared\":false"));
    assert!(html(&by_hand(&SERVER[..1])).contains("\"compared\":true"));
    assert!(html(&by_hand(&SERVER[..1])).contains("\"nodes\":[0,0,180,120,1,1,180,120,"));
    // much of it is packed
    assert!(html(&deep()).contains("<script type=\"application/json\">\""));
    // without samples there is no graph, only what is known about it
    let nothing = html(&plain(&[]));
    assert!(
        !nothing.contains("<div class=\"stage\"") && nothing.contains("997 samples in a second and thread.")
    );
}

#[test]
fn forms_that_cannot_draw_show_the_hottest() {
    let document = plain(SERVER);
    let form = markdown(&document);
    assert!(
        form.contains("**Where the CPU time went**\n\n| function | samples |\n|---|---:|\n| start"),
        "{form}"
    );
    assert!(form.contains("| &lt;/script&gt;&lt;b&gt; | 20 |"), "{form}");
    assert!(!form.contains("<b>") && !form.contains("<T>"), "{form}");
    assert!(form.contains("Samples of a function and of what it calls. 997 samples in a second and thread."));
    insta::assert_snapshot!(text(&plain(&SERVER[5..8]), 60, false), @r"
    by hand



    Profile
    ═══════

    Where the CPU time went
    function              samples
    start_thread              162
    tokio::runtime::wor…      162
    write                     142
    entry_SYSCALL_64 [k…      142
    ksys_write [kernel]       142
    tcp_sendmsg [kernel]      130
    hyper::serve               20
    </script><b>               20
    Samples of a function and of what it calls. 997 samples in a
    second and thread.
    ");
    for width in [40, 80, 200] {
        for line in text(&document, width, false).lines() {
            assert!(width_of(line) <= width, "{line}");
        }
    }
}
