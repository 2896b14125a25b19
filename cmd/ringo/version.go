package main

import (
	"fmt"
	"runtime"

	"github.com/ringo-ml/ringo/cmd/ringo/doctor"
)

// versionCmd is `ringo version`.
type versionCmd struct{}

// Run prints version, commit if known, Go version and platform, on one line.
func (versionCmd) Run() error {
	fmt.Printf("ringo %s %s %s/%s\n", doctor.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}
