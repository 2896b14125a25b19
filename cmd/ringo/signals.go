package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// notifySignals makes signals that end a job go to c: SIGINT (Ctrl-C), SIGTERM, SIGHUP (a closed terminal), and others. Signals that were
// ignored at the start stay ignored, for nohup.
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
