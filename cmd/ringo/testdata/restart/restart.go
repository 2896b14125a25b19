// Package restart is a program that counts steps, keeps the count in DIR/checkpoint and resumes from there. In generation g, rank 1 fails in
// step CRASH[g-1]; there is no failure in later generations. It ends after step LAST, or, if LAST is 0, when DIR/stop exists.
//
//	restart DIR LAST [CRASH...]
package restart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Main is the program.
func Main() {
	err := dist.Run(context.Background(), dist.Config{}, train)
	if err != nil {
		fmt.Printf("error: %v\n", err)
		os.Exit(1)
	}
}

func train(_ context.Context, r *dist.Rank) error {
	dir := os.Args[1]
	last, _ := strconv.Atoi(os.Args[2])
	crash := -1
	if crashes := os.Args[3:]; r.Generation() <= len(crashes) {
		crash, _ = strconv.Atoi(crashes[r.Generation()-1])
	}
	first := 0
	if text, err := os.ReadFile(filepath.Join(dir, "checkpoint")); err == nil {
		done, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		first = done + 1
	}
	pace := time.NewTicker(5 * time.Millisecond)
	for step := first; last == 0 || step <= last; step++ {
		<-pace.C
		if step == crash && r.World.Rank() == 1 {
			return fmt.Errorf("crash in step %d", step)
		}
		stop, err := sum(r)
		if err != nil {
			return err
		}
		if step == first {
			fmt.Printf("generation %d, rank %d of %d, pid %d: step %d\n", r.Generation(), r.World.Rank(), r.World.Size(), os.Getpid(), step)
		}
		if err := keep(r, dir, step); err != nil {
			return err
		}
		if stop {
			break
		}
	}
	fmt.Printf("generation %d, rank %d ends\n", r.Generation(), r.World.Rank())
	return nil
}

// sum all-reduces and tells whether rank 0 has found DIR/stop.
func sum(r *dist.Rank) (stop bool, err error) {
	x := tensor.FromSlice([]float32{1, 0}, 2)
	if _, err := os.Stat(filepath.Join(os.Args[1], "stop")); err == nil && r.World.Rank() == 0 {
		x = tensor.FromSlice([]float32{1, 1}, 2)
	}
	if err := r.World.AllReduce(x, dist.Sum).Wait(); err != nil {
		return false, err
	}
	got := tensor.Data[float32](x)
	if got[0] != float32(r.World.Size()) {
		return false, fmt.Errorf("sum is %v", got[0])
	}
	return got[1] > 0, nil
}

// keep writes the checkpoint, and waits until it is there on all ranks.
func keep(r *dist.Rank, dir string, step int) error {
	if r.World.Rank() == 0 {
		name := filepath.Join(dir, "checkpoint")
		if err := os.WriteFile(name+".new", []byte(strconv.Itoa(step)), 0o666); err != nil {
			return err
		}
		if err := os.Rename(name+".new", name); err != nil {
			return err
		}
	}
	if err := r.World.Barrier().Wait(); err != nil {
		return err
	}
	r.Progress(step)
	return nil
}
