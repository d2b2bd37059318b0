// A name server of a planted system: UDP, one query after the other, each of which takes a fixed time. Every name has
// the address 127.0.0.1. Once it is up it logs `listening`.
package main

import (
	"flag"
	"log"
	"net"
	"time"
)

// answer turns a query into its answer: one A record, or none if the query is of another type.
func answer(query []byte) []byte {
	if len(query) < 12 {
		return nil
	}
	end := 12
	for end < len(query) && query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5
	if end > len(query) {
		return nil
	}
	isA := query[end-4] == 0 && query[end-3] == 1
	reply := append([]byte{}, query[:end]...)
	reply[2], reply[3] = 0x81, 0x80
	copy(reply[4:12], []byte{0, 1, 0, 0, 0, 0, 0, 0})
	if isA {
		reply[7] = 1
		reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
	}
	return reply
}

func main() {
	listen := flag.String("listen", "", "HOST:PORT")
	takes := flag.Duration("takes", 10*time.Millisecond, "what a query takes")
	flag.Parse()
	socket, err := net.ListenPacket("udp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Print("listening")
	buffer := make([]byte, 1500)
	for {
		size, from, err := socket.ReadFrom(buffer)
		if err != nil {
			log.Fatal(err)
		}
		time.Sleep(*takes)
		if reply := answer(buffer[:size]); reply != nil {
			socket.WriteTo(reply, from)
		}
	}
}
