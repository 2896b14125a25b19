package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// notifySignals has signals that end a job sent to c: a key, a launcher, a terminal that closes, and others if so wanted. nohup is respected.
func notifySignals(c chan<- os.Signal, others ...os.Signal) {
	for _, s := range append(others, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// interrupts returns the signals that end a job.
var interrupts = sync.OnceValue(func() <-chan os.Signal {
	c := make(chan os.Signal, 4)
	notifySignals(c)
	return c
})
