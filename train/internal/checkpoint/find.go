package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/ckpt"
)

// Best says which values are the best. The zero Best knows none.
type Best struct {
	Name string // of the value
	Max  bool   // large values are good, not small ones
}

// better reports whether a is better than b. NaN is the worst.
func (o Best) better(a, b float64) bool {
	if o.Max {
		a, b = -a, -b
	}
	return a < b || b != b && a == a
}

// Since returns how many of these values came after the best one.
func (o Best) Since(values []float64) int {
	best := 0
	for i, v := range values {
		if o.better(v, values[best]) {
			best = i
		}
	}
	return max(0, len(values)-1-best)
}

// folder is the name of the checkpoint of a step.
func folder(step int) string { return fmt.Sprintf("step-%08d", step) }

// find returns the path of the checkpoint to load, "" if there is none. It makes the directory, and finds out whether files can be made
// there. Only a directory without checkpoints begins a training: what remains of them is an error.
func (c *Config) find() (path string, err error) {
	if err := os.MkdirAll(c.Dir, 0o777); err != nil {
		return "", fmt.Errorf("-save: %w", err)
	}
	f, err := os.CreateTemp(c.Dir, ".writable")
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		return "", fmt.Errorf("-save: %w", err)
	}
	steps, err := ckpt.Steps(c.Dir)
	switch {
	case err != nil:
		return "", err
	case !c.Resume && len(steps) > 0:
		return "", fmt.Errorf("-save: %s holds checkpoints; -resume goes on from them", c.Dir)
	case c.Step != 0 && len(steps) == 0:
		return "", fmt.Errorf("-resume: %s has no checkpoints", c.Dir)
	case c.Step != 0:
		if path = filepath.Join(c.Dir, folder(c.Step)); !slices.Contains(steps, path) {
			return "", fmt.Errorf("-resume: there is no %s; the steps there are %s", path, names(steps))
		}
		return path, nil
	case len(steps) > 0:
		return ckpt.Latest(c.Dir)
	case c.Resume:
		return "", c.nothingLeft()
	}
	return "", nil
}

func names(paths []string) string {
	var all []string
	for _, p := range paths {
		all = append(all, filepath.Base(p))
	}
	return strings.Join(all, " ")
}

// nothingLeft returns an error if the directory, which has no checkpoint, has folders that were some.
func (c *Config) nothingLeft() error {
	all, err := filepath.Glob(filepath.Join(c.Dir, "*step-*"))
	all = slices.DeleteFunc(all, func(name string) bool { return strings.HasPrefix(filepath.Base(name), ".tmp-") }) // of a save that crashed
	if err == nil && len(all) > 0 {
		err = fmt.Errorf("-resume: %s has no checkpoint, but %s: rename what shall go on to step- and a step of 8 digits, or give another "+
			"directory", c.Dir, names(all))
	}
	return err
}

// putAside gives the checkpoints behind the one that was loaded other names, and adds this to notes. The training will save these steps
// again.
func (c *Config) putAside(notes []string) ([]string, error) {
	steps, err := ckpt.Steps(c.Dir)
	for _, path := range steps {
		name := filepath.Base(path)
		if err != nil || name <= folder(c.Step) && len(name) == len(folder(c.Step)) {
			continue
		}
		to := filepath.Join(c.Dir, "aside-"+name)
		for n := 2; ; n++ {
			if _, missing := os.Lstat(to); missing != nil {
				break
			}
			to = filepath.Join(c.Dir, fmt.Sprintf("aside-%d-%s", n, name))
		}
		err = os.Rename(path, to)
		notes = append(notes, fmt.Sprintf("%s is now %s", name, filepath.Base(to)))
	}
	return notes, err
}

// differences says which settings the checkpoint's run had otherwise.
func (c *Config) differences(then map[string]string) (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
		if was, known := then[name]; known && was != c.Settings[name] {
			notes = append(notes, fmt.Sprintf("-%s is %q, and was %q in the run that saved the checkpoint", name, c.Settings[name], was))
		}
	}
	return notes
}
