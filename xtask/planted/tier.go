// A tier of a planted system: net/http, with a pool or a semaphore if asked for.
package main

import (
	"context"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

var (
	listen     = flag.String("listen", "", "HOST:PORT or unix:PATH")
	upstream   = flag.String("upstream", "", "the next tier, HOST:PORT or unix:PATH, asked after the own work")
	pool       = flag.Int("pool", 0, "most connections to it; 0: as many as it takes")
	before     = flag.String("before", "", "a tier that is asked before the own work, on idle connections kept alive")
	sleep      = flag.Duration("sleep", 0, "own work that waits")
	rounds     = flag.Uint64("rounds", 0, "own work that computes: so many steps")
	semaphore  = flag.Int("semaphore", 0, "how many do the own work at a time; 0: any number")
	resolver   = flag.String("resolver", "", "a name server that is asked for the upstream's name for each request")
	subscribe  = flag.String("subscribe", "", "a tier whose events are listened to, on …")
	subscribed = flag.Int("subscriptions", 10, "… this many connections")
	computed   atomic.Uint64
)

// split separates HOST:PORT from unix:PATH.
func split(address string) (network, where string) {
	if strings.HasPrefix(address, "unix:") {
		return "unix", strings.TrimPrefix(address, "unix:")
	}
	return "tcp", address
}

// dial connects to HOST:PORT or unix:PATH.
func dial(ctx context.Context, address string) (net.Conn, error) {
	var dialer net.Dialer
	network, where := split(address)
	return dialer.DialContext(ctx, network, where)
}

// client keeps connections to one tier, at most `most` of them if that is not 0.
func client(address string, most int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, address)
		},
		MaxConnsPerHost:     most,
		MaxIdleConnsPerHost: 1000,
		DisableCompression:  true,
	}}
}

func get(c *http.Client) error {
	response, err := c.Get("http://upstream/")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// compute is CPU work: a chain of this many steps, each of which takes a nanosecond or two.
func compute(rounds uint64) uint64 {
	x := rounds | 1
	for i := uint64(0); i < rounds; i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// lookUp asks a name server for the upstream's address, as a client without a cache does.
func lookUp(ctx context.Context) error {
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "udp", *resolver)
	}}
	_, err := resolver.LookupIP(ctx, "ip4", "store.internal.")
	return err
}

func follow(address string) {
	for {
		response, err := client(address, 0).Get("http://events/events")
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
}

func main() {
	flag.Parse()
	listener, err := net.Listen(split(*listen))
	if err != nil {
		log.Fatal(err)
	}
	next, first := client(*upstream, *pool), client(*before, 0)
	slots := make(chan struct{}, *semaphore)
	if *subscribe != "" {
		for i := 0; i < *subscribed; i++ {
			go follow(*subscribe)
		}
	}
	own := func() {
		if *semaphore > 0 {
			slots <- struct{}{}
			defer func() { <-slots }()
		}
		time.Sleep(*sleep)
		computed.Store(compute(*rounds))
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		var err error
		if *before != "" {
			err = get(first)
		}
		own()
		if *resolver != "" && err == nil {
			err = lookUp(r.Context())
		}
		if *upstream != "" && err == nil {
			err = get(next)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		io.WriteString(w, "ok\n")
	}
	log.Fatal(http.Serve(listener, http.HandlerFunc(handler)))
}
