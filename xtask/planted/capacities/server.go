// A server with an exact capacity, for `find` to find.
//
//	capacity PORT pool SLOTS HOLD    SLOTS requests at a time, each for HOLD: SLOTS / HOLD a second
//	capacity PORT cpu WORK           a request costs WORK of CPU time, everything included: (CPU limit) / WORK a second
//
// Nothing makes up for lateness: a slot is free again HOLD after it was taken, whenever the answer left.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

func pool(slots int, hold time.Duration) http.HandlerFunc {
	var lock sync.Mutex
	free := make([]time.Time, slots)
	return func(w http.ResponseWriter, _ *http.Request) {
		lock.Lock()
		first := 0
		for i := range free {
			if free[i].Before(free[first]) {
				first = i
			}
		}
		start := time.Now()
		if free[first].After(start) {
			start = free[first]
		}
		free[first] = start.Add(hold)
		done := free[first]
		lock.Unlock()
		time.Sleep(time.Until(done))
		fmt.Fprint(w, "ok")
	}
}

func used() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// CPU time that the process used between two requests counts towards the next one, so that a request costs the same at
// any load.
func cpu(work time.Duration) http.HandlerFunc {
	var lock sync.Mutex
	var paid time.Duration
	return func(w http.ResponseWriter, _ *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		if paid == 0 {
			paid = used()
		}
		for paid += work; used() < paid; {
		}
		fmt.Fprint(w, "ok")
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

func main() {
	args := os.Args[1:]
	var handler http.HandlerFunc
	switch args[1] {
	case "pool":
		handler = pool(number(args[2]), duration(args[3]))
	case "cpu":
		handler = cpu(duration(args[2]))
	default:
		panic("pool or cpu")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+args[0])
	if err != nil {
		panic(err)
	}
	panic(http.Serve(listener, handler))
}
