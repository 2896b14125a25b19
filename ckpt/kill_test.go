package ckpt

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
)

const (
	childVar = "RINGO_CKPT_TEST_CHILD"
	fileVar  = "RINGO_CKPT_TEST_FILE"
)

// TestMain turns the test binary into a program that saves forever, or once, if the environment says so.
func TestMain(m *testing.M) {
	if dir := os.Getenv(leaveVar); dir != "" {
		if err := leave(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv(childVar); dir != "" {
		fmt.Println(saveForEver(dir))
		os.Exit(1)
	}
	if path := os.Getenv(fileVar); path != "" {
		fmt.Println(saveFileForEver(path))
		os.Exit(1)
	}
	os.Exit(inMemory(m))
}

// inMemory runs the tests with their folders in memory, if the system has such a place. On a disk, they would wait for
// hundreds of flushes, most of all beside other tests that write. What a flush must keep is tested with crashFS.
func inMemory(m *testing.M) int {
	dir, err := os.MkdirTemp("/dev/shm", "ckpt")
	if err != nil {
		return m.Run()
	}
	defer os.RemoveAll(dir)
	_ = os.Setenv("TMPDIR", dir) // a valid name
	return m.Run()
}

// saveForEver resumes from the latest checkpoint, saves forever, and prints each step that is complete.
func saveForEver(dir string) error {
	first := 1
	if path, err := Latest(dir); err == nil {
		if _, err := fmt.Sscanf(filepath.Base(path), storage.StepPrefix+"%d", &first); err != nil {
			return err
		}
		first++
	}
	l := layouts["fsdp2"]
	return tryRanks(l.ranks, func(g *dist.Group) error {
		s := newSaver(g, disk.OS{}, dir, Config{Keep: 2, Async: os.Getenv("RINGO_CKPT_TEST_ASYNC") == "1"})
		for version := first; ; version++ {
			if err := s.Save(context.Background(), *newState(failNow{}, g, l, version)); err != nil {
				return err
			}
			if g.Rank() == 0 {
				fmt.Println(version)
			}
		}
	})
}

// TestKill kills a process that saves, at random moments. What it reported as saved must exist, and the latest
// checkpoint must be complete.
func TestKill(t *testing.T) {
	kills := 2
	if reliability.Long(t) {
		kills = 200
	}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(7, 7))
	for i := range kills {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childVar+"="+dir, "RINGO_CKPT_TEST_ASYNC="+strconv.Itoa(i%2))
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan(), "the first checkpoint of process %d", i)
		time.AfterFunc(time.Duration(r.IntN(30000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		last := lines.Text()
		for lines.Scan() {
			last = lines.Text()
		}
		_, _ = io.Copy(io.Discard, out)
		require.Error(t, cmd.Wait(), "it does not end by itself")
		reported, err := strconv.Atoi(last)
		require.NoError(t, err, "the process failed: %s", last)
		if i%2 == 1 {
			reported-- // a save in the background is complete when the next one begins
		}
		requireKilled(t, dir, reported)
	}
}

func TestLongKill(t *testing.T) { reliability.AsLong(t, TestKill) }

func requireKilled(t *testing.T, dir string, reported int) {
	t.Helper()
	if reported == 0 { // the first save was still in the background
		if _, err := Latest(dir); errors.Is(err, os.ErrNotExist) {
			return
		}
	}
	steps, err := storage.ListSteps(disk.OS{}, dir)
	require.NoError(t, err)
	require.NotEmpty(t, steps)
	require.GreaterOrEqual(t, steps[len(steps)-1], reported)
	for _, step := range steps {
		v := mustVerify(t, filepath.Join(dir, storage.StepName(step)), inspect.VerifyConfig{})
		require.Empty(t, v.Errors)
	}
	path, err := Latest(dir)
	require.NoError(t, err)
	loadAll(t, path, layouts["ddp1"], steps[len(steps)-1], LoadConfig{})
}
