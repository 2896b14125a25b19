package ckpt

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// benchBytes is the size of the checkpoints that are measured.
const benchBytes = 1 << 30

// benchParams returns parameters of 64 MiB each, in flat shards.
func benchParams(g *dist.Group) nn.Params {
	var params nn.Params
	const n = 16 << 20
	for i := range benchBytes / (4 * n) {
		p := tensor.NewParam(tensor.Constant(0), n)
		p.SetName(string(rune('a' + i)))
		p.Shard(layout.Share(n, g.Rank(), g.Size()))
		p.Local = tensor.New(g.Device(), tensor.Float32, p.Placement().Len())
		for k := range tensor.Data[float32](p.Local) {
			tensor.Data[float32](p.Local)[k] = float32(k)
		}
		params = append(params, p)
	}
	return params
}

// onOneAndTwo runs fn on one rank and on two ranks that share the parameters, with a folder and a Saver.
func onOneAndTwo(b *testing.B, c Config, fn func(b *testing.B, g *dist.Group, s *Saver, dir string, params nn.Params) error) {
	for _, ranks := range []int{1, 2} {
		b.Run("ranks="+string(rune('0'+ranks)), func(b *testing.B) {
			dir := b.TempDir()
			onRanks(b, ranks, func(g *dist.Group) error {
				s := NewSaver(g, dir, c)
				return errors.Join(fn(b, g, s, dir, benchParams(g)), s.Close())
			})
		})
	}
}

// rates are in MB/s for 1 GiB. Our measurements and dd's alternate, because the speed of a disk varies over time.
type rates struct{ ours, dds []float64 }

// measure adds the rate of fn, which all ranks call after a barrier. Rank 0 reports the medians so far.
func (r *rates) measure(b *testing.B, g *dist.Group, fn func() error) error {
	if err := g.Barrier().Wait(); err != nil {
		return err
	}
	start := time.Now()
	if err := fn(); err != nil {
		return err
	}
	if g.Rank() == 0 {
		r.ours = append(r.ours, benchBytes/1e6/time.Since(start).Seconds())
		b.ReportMetric(median(r.ours), "MB/s")
		b.ReportMetric(median(r.dds), "dd-MB/s")
		b.ReportMetric(0, "ns/op")
	}
	return nil
}

// BenchmarkSave saves 1 GiB and flushes it, alternating with dd. The metrics are medians.
func BenchmarkSave(b *testing.B) {
	onOneAndTwo(b, Config{Keep: 1}, func(b *testing.B, g *dist.Group, s *Saver, dir string, params nn.Params) error {
		var r rates
		for step := range b.N {
			if g.Rank() == 0 {
				r.dds = append(r.dds, dd(b, "if=/dev/zero", "of="+filepath.Join(dir, "dd"), "bs=1M", "count=1024", "conv=fsync"))
				s.removal.Wait()
				require.NoError(b, os.Remove(filepath.Join(dir, "dd")))
			}
			if err := r.measure(b, g, func() error { return s.Save(context.Background(), State{Step: step, Params: params}) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// dd returns its rate for 1 GiB in MB/s.
func dd(b *testing.B, args ...string) float64 {
	if _, err := exec.LookPath("dd"); err != nil {
		b.Skip("no dd")
	}
	start := time.Now()
	out, err := exec.Command("dd", args...).CombinedOutput()
	require.NoError(b, err, "%s", out)
	return benchBytes / 1e6 / time.Since(start).Seconds()
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// BenchmarkSaveAsync measures how long Save of 1 GiB delays training. It alternates with a plain copy into existing
// memory, and reports the first Save, which allocates, separately. The metrics are medians. In replicas, both ranks
// hold everything.
func BenchmarkSaveAsync(b *testing.B) {
	b.Run("shards", func(b *testing.B) { benchAsync(b, 1) })
	b.Run("replicas", func(b *testing.B) { benchAsync(b, 2) })
}

func benchAsync(b *testing.B, ranks int) {
	dir := b.TempDir()
	var copies, saves []float64
	onRanks(b, ranks, func(g *dist.Group) error {
		params := benchParams(g)
		if ranks > 1 {
			for _, p := range params {
				p.Shard(0, p.Len())
				p.Local = tensor.New(g.Device(), tensor.Float32, p.Len())
				for k := range tensor.Data[float32](p.Local) { // pages that were never written all share one zero page
					tensor.Data[float32](p.Local)[k] = float32(k)
				}
			}
		}
		to := make([][]byte, len(params))
		for i, p := range params {
			to[i] = append([]byte(nil), p.Local.Bytes()...)
		}
		s := NewSaver(g, dir, Config{Keep: 1, Async: true})
		for step := range b.N + 1 {
			if err := g.Barrier().Wait(); err != nil {
				return err
			}
			start := time.Now()
			_ = storage.Parallel(len(params), func(i int) error {
				copy(to[i], params[i].Local.Bytes())
				return nil
			})
			copied := time.Since(start)
			if err := g.Barrier().Wait(); err != nil {
				return err
			}
			start = time.Now()
			if err := s.Save(context.Background(), State{Step: step, Params: params}); err != nil {
				return err
			}
			saved := time.Since(start)
			switch {
			case g.Rank() > 0:
			case step == 0:
				b.ReportMetric(saved.Seconds()*1e3, "first-ms")
			default:
				copies, saves = append(copies, copied.Seconds()*1e3), append(saves, saved.Seconds()*1e3)
			}
			if err := s.Wait(); err != nil {
				return err
			}
			s.removal.Wait()
		}
		return s.Close()
	})
	b.ReportMetric(median(saves), "save-ms")
	b.ReportMetric(median(copies), "copy-ms")
	b.ReportMetric(0, "ns/op")
}

// benchLoad saves once; load then loads the checkpoint.
func benchLoad(b *testing.B, fn func(b *testing.B, g *dist.Group, path string, load func() error) error) {
	onOneAndTwo(b, Config{}, func(b *testing.B, g *dist.Group, s *Saver, dir string, params nn.Params) error {
		path := filepath.Join(dir, storage.StepName(0))
		if err := s.Save(context.Background(), State{Params: params}); err != nil {
			return err
		}
		return fn(b, g, path, func() error {
			_, err := Load(context.Background(), g, path, &State{Params: params}, LoadConfig{})
			return err
		})
	})
}

// BenchmarkLoadFromDisk loads 1 GiB that is not in the page cache and verifies its hashes, alternating with dd. The
// metrics are medians.
func BenchmarkLoadFromDisk(b *testing.B) {
	benchLoad(b, func(b *testing.B, g *dist.Group, path string, load func() error) error {
		var r rates
		file := "if=" + filepath.Join(path, "model.safetensors")
		for range b.N {
			if g.Rank() == 0 {
				dd(b, file, "iflag=nocache", "count=0") // drop the file from the page cache
				r.dds = append(r.dds, dd(b, file, "of=/dev/null", "bs=1M"))
				dd(b, file, "iflag=nocache", "count=0")
			}
			if err := r.measure(b, g, load); err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkLoad loads 1 GiB from the page cache and verifies its hashes.
func BenchmarkLoad(b *testing.B) {
	benchLoad(b, func(b *testing.B, g *dist.Group, _ string, load func() error) error {
		if g.Rank() == 0 {
			b.SetBytes(benchBytes)
			b.ResetTimer()
		}
		for range b.N {
			if err := load(); err != nil {
				return err
			}
		}
		return nil
	})
}
