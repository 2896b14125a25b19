package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupts returns the signals that end a job.
var interrupts = sync.OnceValue(func() <-chan os.Signal {
	c := make(chan os.Signal, 4)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	return c
})
