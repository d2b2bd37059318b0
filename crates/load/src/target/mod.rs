//! Where a load goes, and whether it may: URLs, addresses, and the rule that only loopback is a target unless the user
//! said otherwise.

pub mod address;
pub mod allow;
pub mod error;
pub mod names;
pub mod proxy;
pub mod rotation;
pub mod url;

pub use address::{Address, parse_sources, sources_for, sources_on_loopback};
pub use allow::{Allowed, Resolved};
pub use error::TargetError;
pub use proxy::ProxyUrl;
pub use url::Url;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, expect: Result<(&str, u16, &str), &str>) {
        let got = Url::parse(input);
        match expect {
            Ok((host, port, path)) => {
                let url = got.unwrap();
                assert_eq!((url.host.as_str(), url.port, url.path.as_str()), (host, port, path), "{input}");
            }
            Err(why) => assert!(got.unwrap_err().to_string().contains(why), "{input}"),
        }
    }

    #[test]
    fn urls() {
        check("http://127.0.0.1:8080/a?b=c#d", Ok(("127.0.0.1", 8080, "/a?b=c")));
        check("http://localhost", Ok(("localhost", 80, "/")));
        check("localhost:3000/x", Ok(("localhost", 3000, "/x")));
        check("HTTP://h?q", Ok(("h", 80, "/?q")));
        check("http://[::1]:81/", Ok(("::1", 81, "/")));
        check("https://localhost/x", Ok(("localhost", 443, "/x")));
        check("HTTPS://h:8443", Ok(("h", 8443, "/")));
        check("ftp://localhost/", Err("only http and https"));
        check("http:///x", Err("host is missing"));
        check("http://h:0/", Err("port"));
        check("http://h:99999/", Err("port"));
        check("http://h/a b", Err("spaces"));
        check("http://u:p@h/", Err("`http://***@h/` is not a URL: user and password"));
        check("http://[::1/", Err("`[::1` has no `]`\nhint: "));
        check("http://[localhost]:8080/", Err("is not an IPv6 address\nhint: "));
        check("http://127.0.0.1:8080:9090/", Err("has a second port, `9090`\nhint: "));
        check("http://::1:8080/", Err("is an IPv6 address without brackets\nhint: "));
        check("http://ü.test/", Err("`ü.test` is not a host\nhint: "));
        check("unix:/run/a.sock:/x?y#z", Ok(("localhost", 80, "/x?y")));
        check("UNIX:/run/a b.sock:", Ok(("localhost", 80, "/")));
        check("unix:/run/a.sock", Err("no URL path follows"));
        check("unix:a.sock:/", Err("does not begin with `/`"));
        check("unix:/run/a.sock:/a b", Err("spaces"));
        check(&format!("unix:/{}:/", "x".repeat(107)), Err("longer than the 107 bytes"));
    }

    #[test]
    fn a_unix_socket_is_its_own_address_and_always_here() {
        let url = Url::parse("unix:/run/a.sock:/x").unwrap();
        let addresses = url.resolve(&Allowed::default()).unwrap();
        assert_eq!(addresses, ["unix:/run/a.sock".parse().unwrap()]);
        assert!(addresses[0].is_local());
        assert_eq!(addresses[0].to_string(), "unix:/run/a.sock");
        let error = url.by_proxy(&Allowed::default()).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("unix:/run/a.sock"), "{error}");
    }

    #[test]
    fn proxies() {
        let parse = |text: &str| text.parse::<ProxyUrl>();
        let plain = parse("http://127.0.0.1:3128").unwrap();
        assert_eq!((plain.url.port, &plain.authorization), (3128, &None));
        assert_eq!(parse("proxy.test:8080/").unwrap().url.host, "proxy.test");
        let with = parse("http://ada:p%40ss%3a@[::1]:1").unwrap();
        assert_eq!(with.authorization.as_deref(), Some("Basic YWRhOnBAc3M6"));
        let asked = |proxy: &ProxyUrl, url: &str| {
            String::from_utf8(proxy.connect(&Url::parse(url).unwrap()).into_vec()).unwrap()
        };
        assert_eq!(
            asked(&plain, "https://a.test/x"),
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n"
        );
        assert_eq!(
            asked(&with, "https://[::1]:8/"),
            "CONNECT [::1]:8 HTTP/1.1\r\nHost: [::1]:8\r\nProxy-Authorization: Basic YWRhOnBAc3M6\r\n\r\n"
        );
        for (text, why) in [
            ("https://h:1", "only http proxies"),
            ("socks5://h:1", "only http proxies"),
            ("http://h:1/x", "a proxy has no path"),
            ("http://h:x", "`x` is not a port"),
            ("http://h:1:2", "`h:1:2` has a second port"),
            ("http://[localhost]:1", "`[localhost]` is not an IPv6 address"),
            ("http://a%4:b@h:1", "a `%` without two hexadecimal digits"),
            ("", "the host is missing"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(why), "{text}: {error}");
        }
        let told = parse("https://ada:secret@h:1").unwrap_err().to_string();
        assert!(told.contains("https://***@h:1") && !told.contains("secret"), "{told}");
    }

    #[test]
    fn behind_a_proxy_hosts_are_allowed_by_name_and_never_by_what_they_resolve_to() {
        let none = Allowed::default();
        let named = Allowed {
            hosts: vec!["shop.invalid".into(), "192.0.2.7".into(), "[2001:db8:0::7]".into()],
            addresses: vec!["10.1.2.3".parse().unwrap()],
            ..Allowed::default()
        };
        let ask = |url: &str, allowed: &Allowed| Url::parse(url).unwrap().by_proxy(allowed);
        for (url, with_none, with_names) in [
            ("http://127.0.0.1:1/", true, true),
            ("http://127.9.9.9/", true, true),
            ("https://[::1]/", true, true),
            ("http://[::ffff:127.0.0.1]/", true, true),
            ("http://LocalHost:1/", true, true),
            ("http://Shop.invalid/", false, true),
            ("https://shop.invalid:444/", false, true),
            ("http://192.0.2.7/", false, true),
            ("http://[2001:db8::7]/", false, true),
            ("http://10.1.2.3/", false, true),
            ("http://192.0.2.1/", false, false),
            ("http://other.invalid/", false, false),
            ("http://a.shop.invalid/", false, false),
            ("http://localhost.invalid/", false, false),
            // The resolver here resolves these to 127.0.0.1; how the proxy resolves them is unknown.
            ("http://127.1/", false, false),
            ("http://2130706433/", false, false),
            ("http://0x7f.0.0.1/", false, false),
        ] {
            assert_eq!((ask(url, &none).is_ok(), ask(url, &named).is_ok()), (with_none, with_names), "{url}");
        }
        let refused = ask("https://other.invalid/", &named).unwrap_err();
        assert!(
            !refused.is_usage() && refused.to_string().contains("--allow-host other.invalid"),
            "{refused}"
        );
    }

    #[test]
    fn addresses_given_for_names_do_not_go_with_a_proxy() {
        let resolved = vec!["shop.invalid:80:127.0.0.1".parse().unwrap()];
        let allowed = Allowed { resolved, hosts: vec!["shop.invalid".into()], ..Allowed::default() };
        for url in ["http://shop.invalid/", "http://127.0.0.1/"] {
            let error = Url::parse(url).unwrap().by_proxy(&allowed).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("`--resolve`"), "{url}: {error}");
        }
    }

    #[test]
    fn given_addresses_replace_names_and_must_be_allowed() {
        let given = |text: &str| Allowed { resolved: vec![text.parse().unwrap()], ..Allowed::default() };
        let url = Url::parse("https://Shop.test/x").unwrap();
        let resolved = url.resolve(&given("shop.test:443:127.0.0.3")).unwrap();
        assert_eq!(resolved, ["127.0.0.3:443".parse().unwrap()]);
        let v6 = url.resolve(&given("shop.test:443:[::1]")).unwrap();
        assert_eq!(v6, ["[::1]:443".parse().unwrap()]);
        let refused = url.resolve(&given("shop.test:443:192.0.2.1")).unwrap_err();
        assert!(matches!(refused, TargetError::NotAllowed { .. }), "{refused}");
        for bad in ["", "a", "a:b:c", "a:0:127.0.0.1", "a:80", "a:80:x", ":80:127.0.0.1"] {
            assert!(bad.parse::<Resolved>().unwrap_err().contains("HOST:PORT:ADDRESS"), "{bad}");
        }
    }

    #[test]
    fn sources() {
        assert_eq!(parse_sources("127.0.1.1").unwrap().len(), 1);
        let range = parse_sources("127.0.1.250-127.0.2.5").unwrap();
        assert_eq!((range.len(), range[6].to_string()), (12, "127.0.2.0".to_owned()));
        for bad in ["", "x", "127.0.0.2-127.0.0.1", "127.0.0.1-::1", "10.0.0.0-10.255.0.0"] {
            assert!(parse_sources(bad).is_err(), "{bad}");
        }
        let hosts = [vec!["127.0.0.1:80".parse().unwrap()]];
        assert_eq!(sources_for(&hosts, 1_000_000).len(), 125);
        assert!(sources_for(&hosts, 10_000).is_empty());
        assert!(sources_for(&[vec!["[::1]:80".parse().unwrap()]], 1_000_000).is_empty());
    }

    #[test]
    fn only_loopback_unless_allowed() {
        let none = Allowed::default();
        assert!(none.check("localhost", "127.0.0.1".parse().unwrap()).is_ok());
        assert!(none.check("x", "127.9.9.9".parse().unwrap()).is_ok());
        assert!(none.check("x", "::1".parse().unwrap()).is_ok());
        assert!(none.check("x", "::ffff:127.0.0.1".parse().unwrap()).is_ok());
        let refused = none.check("example.org", "192.0.2.7".parse().unwrap()).unwrap_err();
        assert!(refused.to_string().contains("--allow-host example.org"), "{refused}");
        let by_name = Allowed { hosts: vec!["example.org".into()], ..Allowed::default() };
        assert!(by_name.check("example.org", "192.0.2.7".parse().unwrap()).is_ok());
        assert!(by_name.check("example.net", "192.0.2.7".parse().unwrap()).is_err());
    }

    #[test]
    fn addresses_of_another_family_than_the_source_are_skipped() {
        let resolved = ["127.0.0.1", "::1"].map(|a| format!("both.test:80:{a}").parse().unwrap()).to_vec();
        let from = |source: &str| Allowed {
            resolved: resolved.clone(),
            source: Some(source.parse().unwrap()),
            ..Allowed::default()
        };
        let both = Url::parse("http://both.test/").unwrap();
        let inet = |text: &str| vec![Address::Inet(text.parse().unwrap())];
        assert_eq!(both.resolve(&from("127.0.0.9")).unwrap(), inet("127.0.0.1:80"));
        assert_eq!(both.resolve(&from("::1")).unwrap(), inet("[::1]:80"));
        let error = Url::parse("http://[::1]/").unwrap().resolve(&from("127.0.0.9")).unwrap_err();
        let text = "has no IPv4 address, so nothing can be sent to it from 127.0.0.9\nhint: give `--source` an IPv6 address";
        assert!(error.to_string().contains(text), "{error}");
    }
}
