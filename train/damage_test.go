package train_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// damage does something to the checkpoints in a directory, and says what.
func damage(rng *rand.Rand, dir string) (what string, err error) {
	var files []string
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(name, "step-") {
			files = append(files, name)
		}
		return err
	})
	steps, globErr := filepath.Glob(filepath.Join(dir, "step-*"))
	if err != nil || globErr != nil || len(files) < 2 || len(steps) < 2 {
		return "", err
	}
	file, step := files[rng.IntN(len(files))], steps[rng.IntN(len(steps))]
	other, another := files[rng.IntN(len(files))], steps[rng.IntN(len(steps))]
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrPermission) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	swap := func(a, b string) error {
		if a == b {
			return nil
		}
		err := os.Rename(a, a+".x")
		if err == nil {
			err = os.Rename(b, a)
		}
		if err == nil {
			err = os.Rename(a+".x", b)
		}
		return err
	}
	switch rng.IntN(9) {
	case 0:
		return "no " + file, os.Remove(file)
	case 1:
		return "cut " + file, os.WriteFile(file, text[:rng.IntN(len(text)+1)], 0o666)
	case 2:
		if len(text) > 0 {
			text[rng.IntN(len(text))] ^= 1 << rng.IntN(8)
		}
		return "flipped " + file, os.WriteFile(file, text, 0o666)
	case 3:
		return "swapped " + file + " " + other, swap(file, other)
	case 4:
		return "swapped " + step + " " + another, swap(step, another)
	case 5:
		return "renamed " + file, os.Rename(file, fmt.Sprint(file, ".bak", rng.Uint64()))
	case 6:
		return "renamed " + step, os.Rename(step, fmt.Sprint(step, ".bak", rng.Uint64()))
	case 7:
		return "no permission " + file, os.Chmod(file, 0)
	}
	return "an empty folder", os.MkdirAll(filepath.Join(dir, "step-00000099"), 0o777)
}

// hashes returns what is in each folder of checkpoints, whatever its name.
func hashes(t *testing.T, dir string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, name := range folders(t, dir) {
		h := sha256.New()
		require.NoError(t, filepath.WalkDir(filepath.Join(dir, name), func(file string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				text, readErr := os.ReadFile(file)
				fmt.Fprintf(h, "%s %x\n", filepath.Base(file), text)
				if !errors.Is(readErr, fs.ErrPermission) {
					err = readErr
				}
			}
			return err
		}))
		all[fmt.Sprintf("%x", h.Sum(nil))] = true
	}
	return all
}

var back = regexp.MustCompile(`-resume=step-(\d+)`)

// A resume from damaged checkpoints goes on from a sound one, or is an error that changes nothing. The step that the error names leads
// back, if need be in several stages. Training then ends as it does without damage, and no checkpoint is lost, but for those that Keep
// removes when the last one is there.
func TestDamages(t *testing.T) {
	if _, err := os.Stat("/dev/shm"); err == nil {
		t.Setenv("TMPDIR", "/dev/shm") // no test of a disk
	}
	whole := run{steps: 9}
	want, err := whole.train()
	require.NoError(t, err)
	before := run{steps: 8}
	before.Save, before.SaveEvery = t.TempDir(), 2
	_, err = before.train()
	require.NoError(t, err)
	cases := 25
	if reliability.Long(t) {
		cases = 3000
	}
	refused, resumed := 0, map[int]int{}
	for seed := range cases {
		rng, dir := rand.New(rand.NewPCG(uint64(seed), 7)), t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(before.Save)))
		text := fmt.Sprintf("seed %d", seed)
		for range 1 + rng.IntN(6) {
			what, err := damage(rng, dir)
			require.NoError(t, err)
			text += ", " + what
		}
		there := hashes(t, dir)
		x := run{steps: 9}
		x.Save, x.Resume, x.Keep = dir, true, max(0, seed%6-2) // in half of the cases, checkpoints go when newer ones are there
		ended := false
		for last := 100; ; {
			got, err := x.train()
			if err == nil {
				require.NotZero(t, got.resumed, text)
				require.Equal(t, want.weights, got.weights, text)
				resumed[got.resumed]++
				ended = true
				break
			}
			require.Equal(t, there, hashes(t, dir), text)
			m := back.FindStringSubmatch(err.Error())
			if m == nil {
				require.Regexp(t, "there is no sound checkpoint before it|has no checkpoint, but", err.Error(), text)
				refused++
				break
			}
			x.ResumeStep, err = strconv.Atoi(m[1])
			require.NoError(t, err)
			require.Less(t, x.ResumeStep, last, text)
			last = x.ResumeStep
		}
		if x.Keep == 0 {
			after := hashes(t, dir)
			for hash := range there {
				require.True(t, after[hash], text)
			}
		} else if ended { // Keep leaves the last one, at least
			x.ResumeStep = 0
			again, err := x.train()
			require.NoError(t, err, text)
			require.Equal(t, result{weights: want.weights, resumed: 9}, result{weights: again.weights, resumed: again.resumed}, text)
		}
	}
	t.Log(refused, resumed)
	require.Positive(t, refused)
	require.Len(t, resumed, 4)
}

func TestLongDamages(t *testing.T) { reliability.AsLong(t, TestDamages) }
