package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionCmd is `ringo version`.
type versionCmd struct{}

// Run prints version, commit if known, Go version and platform, on one line.
func (versionCmd) Run() error {
	fmt.Printf("ringo %s %s %s/%s\n", ringoVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

// ringoVersion is the version, with the commit if known.
func ringoVersion() string {
	version, commit := "(devel)", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = " " + s.Value
			}
		}
	}
	return version + commit
}
