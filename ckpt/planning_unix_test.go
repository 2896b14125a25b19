//go:build unix

package ckpt

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/optim"
)

// BenchmarkPlanning measures how long 64 ranks (goroutines) plan a first and a later save of 2,160 tensors. This is all
// that Save does before it copies or writes. It reports the time from the start of the first rank to the end of the
// last one, and the CPU time of all ranks.
func BenchmarkPlanning(b *testing.B) {
	var first, later planTimes
	for range b.N {
		onRanks(b, 64, func(g *dist.Group) error {
			params := manyParams(g)
			st := State{Params: params, Optimizer: optim.NewAdamW(params, optim.AdamWConfig{LR: 0.1})}
			s := NewSaver(g, b.TempDir(), Config{})
			for _, times := range []*planTimes{&first, &later} {
				err := g.Barrier().Wait()
				start, used := time.Now(), processorTime()
				if err == nil {
					_, err = s.begin(st)
				}
				if err == nil {
					err = g.Barrier().Wait()
				}
				if err != nil {
					return err
				}
				if g.Rank() == 0 {
					times.add(time.Since(start), processorTime()-used)
				}
			}
			return s.Close()
		})
	}
	first.report(b, "first")
	later.report(b, "later")
	b.ReportMetric(0, "ns/op")
}

// planTimes are the times of successive saves, in ms.
type planTimes struct{ wall, used []float64 }

func (p *planTimes) add(wall, used time.Duration) {
	p.wall, p.used = append(p.wall, wall.Seconds()*1e3), append(p.used, used.Seconds()*1e3)
}

func (p *planTimes) report(b *testing.B, name string) {
	b.ReportMetric(median(p.wall), name+"-ms")
	b.ReportMetric(median(p.used), name+"-cpu-ms")
}

// processorTime is the CPU time of the process.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
