// A server with a pool whose size can be changed.
//
//	pool ADDRESS SIZE HOLD    SIZE requests at a time, each for HOLD
//	pool set ADDRESS SIZE     changes the size of one that is up
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

type pool struct {
	lock sync.Mutex
	free *sync.Cond
	size int
	used int
}

func (p *pool) enter() {
	p.lock.Lock()
	defer p.lock.Unlock()
	for p.used >= p.size {
		p.free.Wait()
	}
	p.used++
}

func (p *pool) leave() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.used--
	p.free.Signal()
}

func (p *pool) resize(size int) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.size = size
	p.free.Broadcast()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	check(err)
	return n
}

func main() {
	args := os.Args[1:]
	if args[0] == "set" {
		answer, err := http.Get("http://" + args[1] + "/size?to=" + args[2])
		check(err)
		if answer.StatusCode != http.StatusOK {
			panic(answer.Status)
		}
		return
	}
	p := &pool{size: number(args[1])}
	p.free = sync.NewCond(&p.lock)
	hold, err := time.ParseDuration(args[2])
	check(err)
	http.HandleFunc("/size", func(_ http.ResponseWriter, r *http.Request) {
		p.resize(number(r.URL.Query().Get("to")))
	})
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		p.enter()
		defer p.leave()
		time.Sleep(hold)
		fmt.Fprint(w, "ok")
	})
	listener, err := net.Listen("tcp", args[0])
	check(err)
	panic(http.Serve(listener, nil))
}
