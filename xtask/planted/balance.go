// A balancer of a planted system: it sends each request to one of its backends, chosen at random by weight.
package main

import (
	"flag"
	"io"
	"log"
	"math/rand"
	"net/http"
	"strconv"
	"strings"
)

func main() {
	listen := flag.String("listen", "", "HOST:PORT")
	backends := flag.String("backends", "", "HOST:PORT,…")
	weights := flag.String("weights", "", "a number for each of them")
	flag.Parse()
	to := strings.Split(*backends, ",")
	var ranges []float64
	var sum float64
	for _, text := range strings.Split(*weights, ",") {
		weight, err := strconv.ParseFloat(text, 64)
		if err != nil {
			log.Fatal(err)
		}
		sum += weight
		ranges = append(ranges, sum)
	}
	if len(ranges) != len(to) {
		log.Fatal("as many weights as backends")
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}}
	handler := func(w http.ResponseWriter, r *http.Request) {
		at, i := rand.Float64()*sum, 0
		for ranges[i] < at {
			i++
		}
		response, err := client.Get("http://" + to[i] + "/")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer response.Body.Close()
		w.WriteHeader(response.StatusCode)
		io.Copy(w, response.Body)
	}
	log.Fatal(http.ListenAndServe(*listen, http.HandlerFunc(handler)))
}
