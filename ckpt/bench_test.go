package ckpt

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
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
		lo, hi := share(n, g.Rank(), g.Size()), share(n, g.Rank()+1, g.Size())
		p.Shard = tensor.Shard{Global: []int{n}, Flat: [2]int{lo, hi}, Counts: true}
		p.Local = tensor.New(g.Device(), tensor.Float32, hi-lo)
		for k := range tensor.Data[float32](p.Local) {
			tensor.Data[float32](p.Local)[k] = float32(k)
		}
		params = append(params, p)
	}
	return params
}

// BenchmarkSave saves 1 GiB, flushed; the time of an async save is what Save takes to return. BenchmarkDD is what the disk
// can do.
func BenchmarkSave(b *testing.B) {
	for name, c := range map[string]Config{"sync": {Keep: 1}, "async": {Keep: 1, Async: true}} {
		for _, ranks := range []int{1, 2} {
			b.Run(name+"/ranks="+string(rune('0'+ranks)), func(b *testing.B) {
				dir := b.TempDir()
				b.SetBytes(benchBytes)
				onRanks(b, ranks, func(g *dist.Group) error {
					params := benchParams(g)
					s := NewSaver(g, dir, c)
					for step := range b.N + 1 {
						if step == 1 && g.Rank() == 0 {
							b.ResetTimer()
						}
						if err := s.Save(context.Background(), State{Step: step, Params: params}); err != nil {
							return err
						}
						if g.Rank() == 0 {
							b.StopTimer()
						}
						if err := s.wait(); err != nil {
							return err
						}
						s.removal.Wait()
						if g.Rank() == 0 {
							b.StartTimer()
						}
					}
					return s.Close()
				})
			})
		}
	}
}

// BenchmarkLoad loads 1 GiB that the system has in memory, hashes verified.
func BenchmarkLoad(b *testing.B) {
	for _, ranks := range []int{1, 2} {
		b.Run("ranks="+string(rune('0'+ranks)), func(b *testing.B) {
			dir := b.TempDir()
			b.SetBytes(benchBytes)
			onRanks(b, ranks, func(g *dist.Group) error {
				params := benchParams(g)
				s := NewSaver(g, dir, Config{})
				if err := s.Save(context.Background(), State{Params: params}); err != nil {
					return err
				}
				if g.Rank() == 0 {
					b.ResetTimer()
				}
				for range b.N {
					if _, err := Load(context.Background(), g, filepath.Join(dir, stepName(0)), &State{Params: params}, LoadConfig{}); err != nil {
						return err
					}
				}
				return s.Close()
			})
		})
	}
}

// BenchmarkCopy copies 1 GiB to memory that is there already, as an async save does.
func BenchmarkCopy(b *testing.B) {
	from, to := make([]byte, benchBytes), make([]byte, benchBytes)
	copy(to, from)
	b.SetBytes(benchBytes)
	b.ResetTimer()
	for range b.N {
		_ = parallel(16, func(i int) error {
			copy(to[i*benchBytes/16:(i+1)*benchBytes/16], from[i*benchBytes/16:])
			return nil
		})
	}
}

// BenchmarkDD writes and reads 1 GiB as dd does.
func BenchmarkDD(b *testing.B) {
	file := filepath.Join(b.TempDir(), "x")
	for name, args := range map[string][]string{
		"write": {"if=/dev/zero", "of=" + file, "bs=1M", "count=1024", "conv=fsync"},
		"read":  {"if=" + file, "of=/dev/null", "bs=1M"},
	} {
		b.Run(name, func(b *testing.B) {
			if _, err := exec.LookPath("dd"); err != nil {
				b.Skip("no dd")
			}
			require.NoError(b, exec.Command("dd", "if=/dev/zero", "of="+file, "bs=1M", "count=1024", "conv=fsync").Run())
			b.SetBytes(benchBytes)
			b.ResetTimer()
			for range b.N {
				out, err := exec.Command("dd", args...).CombinedOutput()
				require.NoError(b, err, "%s", out)
			}
		})
	}
}
