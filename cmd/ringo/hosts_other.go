//go:build !linux

package main

import (
	"errors"
	"io"
	"time"
)

func noHosts() string { return "network namespaces need Linux" }

func runOnHosts(benchSpec, int, time.Duration, io.Writer, func(rank int, text []byte) bool) error {
	return errors.New(noHosts())
}
