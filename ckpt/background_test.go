package ckpt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// slowFS is a disk that writes no data before gate is closed. Then it returns err, unless nil.
type slowFS struct {
	disk.OS
	gate  chan struct{}
	err   error
	once  sync.Once
	began chan struct{} // closed at the first write
}

func (f *slowFS) Open(name string, write bool) (disk.File, error) {
	x, err := f.OS.Open(name, write)
	if err != nil || !write {
		return x, err
	}
	return &slowFile{x, f}, nil
}

type slowFile struct {
	disk.File
	fs *slowFS
}

func (f *slowFile) WriteAt(b []byte, off int64) (int, error) {
	f.fs.once.Do(func() { close(f.fs.began) })
	<-f.fs.gate
	if f.fs.err != nil {
		return 0, f.fs.err
	}
	return f.File.WriteAt(b, off)
}

// saveAndLeave has two ranks start a save in the background and then return what end says, without Wait or Close. The
// disk starts to write before end. After end it continues, or fails with diskErr; if hangs is not nil, only when hangs
// is closed.
func saveAndLeave(ctx context.Context, dir string, diskErr error, hangs chan struct{},
	end func(ctx context.Context, r *dist.Rank) error) error {
	gate := hangs
	if gate == nil {
		gate = make(chan struct{})
	}
	return dist.Run(ctx, dist.Config{Ranks: 2, Threads: 1, Timeout: time.Minute}, func(ctx context.Context, r *dist.Rank) error {
		fsys := &slowFS{gate: gate, err: diskErr, began: make(chan struct{})}
		s := newSaver(r.World, fsys, dir, Config{Async: true})
		if hangs != nil {
			s.patience = time.Millisecond
		}
		if err := s.Save(ctx, *newState(failNow{}, r.World, layouts["fsdp2"], 1)); err != nil {
			return err
		}
		<-fsys.began
		if err := r.World.Barrier().Wait(); err != nil {
			return err
		}
		if r.World.Rank() == 0 && hangs == nil {
			r.AtEnd(func(context.Context) error { // runs before the Saver's
				close(gate)
				return nil
			})
		}
		return end(ctx, r)
	})
}

func requireComplete(t *testing.T, dir string) {
	t.Helper()
	path, err := Latest(dir)
	require.NoError(t, err)
	require.True(t, mustVerify(t, path, inspect.VerifyConfig{}).OK)
	loadAll(t, path, layouts["ddp3"], 1, LoadConfig{})
}

func requireNothing(t *testing.T, dir string) {
	t.Helper()
	names, err := disk.OS{}.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, names)
}

// A save in the background writes the small files that Save was called with, whatever the program makes of them meanwhile.
func TestFilesAreCopied(t *testing.T) {
	dir, l := t.TempDir(), layouts["ddp2"]
	onRanks(t, l.ranks, func(g *dist.Group) error {
		fsys := &slowFS{gate: make(chan struct{}), began: make(chan struct{})}
		s, st := newSaver(g, fsys, dir, Config{Async: true}), newState(t, g, l, 1)
		st.Files["more.json"] = []byte("more")
		require.NoError(t, s.Save(t.Context(), *st))
		<-fsys.began
		st.Files["config.json"][0] = '!'
		delete(st.Files, "more.json")
		close(fsys.gate)
		return s.Close()
	})
	requireComplete(t, dir)
	text, err := os.ReadFile(filepath.Join(dir, storage.StepName(1), "more.json"))
	require.NoError(t, err)
	require.Equal(t, "more", string(text))
}

// TestRunJoinsSave: a program that returns during a save in the background leaves a complete checkpoint.
func TestRunJoinsSave(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, saveAndLeave(t.Context(), dir, nil, nil, func(context.Context, *dist.Rank) error { return nil }))
	requireComplete(t, dir)
}

// TestRunReturnsError: if the disk fails after the function has returned, Run returns that error.
func TestRunReturnsError(t *testing.T) {
	dir, full := t.TempDir(), errors.New("no space left on device")
	err := saveAndLeave(t.Context(), dir, full, nil, func(context.Context, *dist.Rank) error { return nil })
	require.ErrorContains(t, err, "ckpt: saving step 1: ")
	require.ErrorContains(t, err, full.Error())
	requireNothing(t, dir)
}

// TestFailedFunction: if the function returns an error, on all ranks or on one, the save still finishes, and Run
// returns that error. The other rank waits in a collective meanwhile.
func TestFailedFunction(t *testing.T) {
	wrong := errors.New("the loss is NaN")
	fails := map[string]func() error{
		"error":  func() error { return wrong },
		"panic":  func() error { panic(wrong) },
		"Goexit": func() error { runtime.Goexit(); return nil },
	}
	for name, fail := range fails {
		for _, who := range []int{-1, 0} {
			t.Run(fmt.Sprint(name, who), func(t *testing.T) {
				dir := t.TempDir()
				err := saveAndLeave(t.Context(), dir, nil, nil, func(_ context.Context, r *dist.Rank) error {
					if who < 0 || r.World.Rank() == who {
						return fail()
					}
					return r.World.AllReduce(tensor.FromSlice([]float32{1}, 1), dist.Sum).Wait()
				})
				if name == "Goexit" {
					require.ErrorContains(t, err, "runtime.Goexit")
				} else {
					require.ErrorIs(t, err, wrong)
				}
				requireComplete(t, dir)
			})
		}
	}
}

// TestFailedSaveToo: Run returns both errors.
func TestFailedSaveToo(t *testing.T) {
	wrong, full := errors.New("the loss is NaN"), errors.New("no space left on device")
	err := saveAndLeave(t.Context(), t.TempDir(), full, nil, func(context.Context, *dist.Rank) error { return wrong })
	require.ErrorIs(t, err, wrong)
	require.ErrorContains(t, err, full.Error())
}

// TestAbortedSave: the disk hangs when the job ends, because of its context or because a group fails. Run returns and
// says what is lost. The folder does not become a checkpoint when the disk answers again.
func TestAbortedSave(t *testing.T) {
	gone := errors.New("Ctrl-C")
	for name, end := range map[string]func(cancel context.CancelCauseFunc, r *dist.Rank) error{
		"ctx": func(cancel context.CancelCauseFunc, r *dist.Rank) error {
			cancel(gone)
			return nil
		},
		"group": func(_ context.CancelCauseFunc, r *dist.Rank) error {
			if r.World.Rank() == 1 {
				r.World.Abort(gone)
			}
			return r.World.Barrier().Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			dir, gate := t.TempDir(), make(chan struct{})
			err := saveAndLeave(ctx, dir, nil, gate, func(_ context.Context, r *dist.Rank) error { return end(cancel, r) })
			require.ErrorContains(t, err, "Ctrl-C")
			require.ErrorContains(t, err, "ckpt: step 1 is not saved: the disk has not answered for 1ms, and the job ended: ")
			close(gate)
			_, err = Latest(dir)
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

const leaveVar = "RINGO_CKPT_TEST_LEAVE"

// leave runs a rank that starts a save in the background and returns.
func leave(dir string) error {
	return dist.Run(context.Background(), dist.Config{Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		s := newSaver(r.World, disk.OS{}, dir, Config{Async: true})
		return s.Save(ctx, *newState(failNow{}, r.World, layouts["fsdp2"], 1))
	})
}
