// A service with a planted hot function. Three quarters of its work are in one function, the rest in another.
package main

import (
	"net/http"
	"os"
)

var sink uint64

func steps(count uint64) uint64 {
	x := count | 1
	for i := uint64(0); i < count; i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

//go:noinline
func plantedHot() { sink = steps(300000) }

//go:noinline
func plantedWarm() { sink = steps(100000) }

func main() {
	http.HandleFunc("/", func(to http.ResponseWriter, _ *http.Request) {
		plantedWarm()
		plantedHot()
		to.Write([]byte("ok\n"))
	})
	if err := http.ListenAndServe("127.0.0.1:"+os.Args[1], nil); err != nil {
		panic(err)
	}
}
