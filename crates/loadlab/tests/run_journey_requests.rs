//! `loadlab run` with journeys: the server receives what the steps send.

use crate::common::server::{Request, Server, Step, response, send};
use crate::run_support::{Lab, component, plan};

/// Checks what each step sent: 204 if it is right, 400 otherwise.
fn judge(request: &Request) -> Vec<Step> {
    let body = String::from_utf8_lossy(&request.body).into_owned();
    let kind = request.header("content-type").unwrap_or_default();
    let right = match request.target.as_str() {
        "/login" => kind == "application/x-www-form-urlencoded" && body == "user=ada&password=a+b%26c",
        "/bearer" => request.header("authorization") == Some("Bearer x.y"),
        "/basic" => request.header("authorization") == Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
        "/upload" => kind.split_once("multipart/form-data; boundary=").is_some_and(|(_, boundary)| {
            body == format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nsea\r\n--{boundary}\r\n\
                 Content-Disposition: form-data; name=\"picture\"; filename=\"sea.png\"\r\nContent-Type: image/png\r\n\r\n\
                 PNG!\r\n--{boundary}--\r\n"
            )
        }),
        _ => false,
    };
    vec![send(if right { b"HTTP/1.1 204 No Content\r\n\r\n".to_vec() } else { response(400, &body) })]
}

#[test]
fn forms_parts_and_users_reach_the_server() {
    let server = Server::start(judge);
    let lab = Lab::new();
    lab.file("sea.png", "PNG!");
    let url = |path: &str| server.url(path);
    let plan = format!(
        "loadlab: 1\nname: forms\nload:\n  users: 2\n  repeats: 3\n  journey:\n\
         \x20   - {{ post: \"{}\", form: {{ user: ada, password: a b&c }} }}\n\
         \x20   - {{ get: \"{}\", auth: {{ bearer: x.y }} }}\n\
         \x20   - {{ get: \"{}\", auth: {{ basic: {{ user: Aladdin, password: open sesame }} }} }}\n\
         \x20   - post: {}\n      multipart:\n        - {{ name: title, text: sea }}\n        - {{ name: picture, file: sea.png, type: image/png }}\n",
        url("/login"),
        url("/bearer"),
        url("/basic"),
        url("/upload"),
    );
    let ran = lab.run(&plan, &[]);
    ran.expect(0, &[]);
    assert_eq!(lab.record().summary("default", 1)["statuses"], serde_json::json!({ "204": 24 }));
}

#[test]
fn a_part_whose_file_is_not_there_is_named() {
    let server = Server::start(judge);
    let lab = Lab::new();
    let plan = format!(
        "loadlab: 1\nname: n\nload:\n  users: 1\n  requests: 1\n  journey:\n    - post: {}\n      multipart:\n        - {{ name: a, file: none.png }}\n",
        server.url("/upload")
    );
    let ran = lab.run(&plan, &[]);
    assert_ne!(ran.code, Some(0));
    assert!(ran.err.contains("plan.yaml:9:28: step 1 of `load`: cannot read the body"), "{}", ran.err);
    assert_eq!(server.counts().requests, 0);
}

/// A report shows a target's resolved address, and the parts that vary per request as the plan has them.
#[test]
fn a_target_is_reported_with_what_was_known_of_it() {
    let lab = Lab::new();
    let load = "load:\n  users: 2\n  requests: 4\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/a?u=${uuid}\" }]\n";
    lab.run(&plan(&[component("web", "", &[])], load), &[]).expect(0, &[]);
    let summary = lab.record().summary("default", 1);
    let url = summary["load"]["url"].as_str().expect("a URL");
    let port = url.strip_prefix("http://127.0.0.1:").and_then(|rest| rest.strip_suffix("/a?u=${uuid}"));
    assert!(port.is_some_and(|port| port.parse::<u16>().is_ok()), "{url}");
}
