package main

import (
	"bytes"
	"os"
	"testing"
)

// The committed assembly must be what the generator writes.
func TestCommittedAssemblyIsCurrent(t *testing.T) {
	files, err := outputs()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is out of date: run go run . in this directory", path)
		}
	}
}
