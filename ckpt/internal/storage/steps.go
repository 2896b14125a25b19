package storage

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/internal/bounded"
)

// Beginnings of the names of folders.
const (
	StepPrefix = "step-"
	TmpPrefix  = ".tmp-" // begins the names of folders that are being written or removed
)

// StepName is the name of the folder of a step.
func StepName(step int) string { return fmt.Sprintf("%s%08d", StepPrefix, step) }

// ListSteps returns the steps of the checkpoints in a directory, in order.
func ListSteps(fsys disk.FS, dir string) ([]int, error) {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var steps []int
	for _, name := range names {
		if n, ok := stepOf(name); ok {
			steps = append(steps, n)
		}
	}
	slices.Sort(steps)
	return steps, nil
}

// stepOf returns the step of a name that StepName made.
func stepOf(name string) (step int, ok bool) {
	number, ok := strings.CutPrefix(name, StepPrefix)
	n, err := strconv.Atoi(number)
	return n, ok && err == nil && n >= 0 && name == StepName(n)
}

// WithPrevious adds to err, which says how the checkpoint at path is damaged, the last sound checkpoint before it. It
// returns nil for nil.
func WithPrevious(fsys disk.FS, path string, err error) error {
	dir, name := filepath.Split(filepath.Clean(path))
	last, ok := stepOf(name)
	if err == nil || !ok {
		return err
	}
	steps, listErr := ListSteps(fsys, filepath.Clean(dir))
	if listErr != nil {
		return err
	}
	for _, step := range slices.Backward(steps) {
		if step >= last {
			continue
		}
		before := filepath.Join(dir, StepName(step))
		if src, openErr := Open(fsys, before); openErr == nil {
			_ = src.Close() // opened for reading only
			return fmt.Errorf("%w; the checkpoint before it is %s: verify it, and go on from there with -resume=%s, or give %s another name",
				err, before, StepName(step), name)
		}
	}
	return fmt.Errorf("%w; there is no sound checkpoint before it", err)
}

// Retain renames all checkpoints except the newest keep ones and those of steps that spare returns for the list of all, and returns the
// folders to remove. It renames them first, so that a folder that is only partly removed cannot be taken for a checkpoint.
func Retain(fsys disk.FS, dir string, keep int, spare func(steps []int) []int) ([]string, error) {
	steps, err := ListSteps(fsys, dir)
	if err != nil || len(steps) <= keep {
		return nil, err
	}
	var old []string
	spared := spare(steps)
	for _, step := range steps[:len(steps)-keep] {
		if slices.Contains(spared, step) {
			continue
		}
		to := filepath.Join(dir, TmpPrefix+"old-"+StepName(step))
		if err := fsys.Rename(filepath.Join(dir, StepName(step)), to); err != nil {
			return nil, err
		}
		old = append(old, to)
	}
	return old, fsys.SyncDir(dir)
}

// TmpName returns a temporary name for what will have this name when it is complete.
func TmpName(name string) string { return TmpPrefix + name + "-" + rand.Text()[:8] }

// RemoveStale removes what crashed saves left in a directory: everything, or, if name is not "", the temporary files of
// the file of this name.
func RemoveStale(fsys disk.FS, dir, name string) error {
	names, err := fsys.ReadDir(dir)
	for _, left := range names {
		if rest, ok := strings.CutPrefix(left, TmpPrefix+name); ok && (name == "" || len(left) == len(TmpName(name)) && rest[0] == '-') {
			err = errors.Join(err, fsys.RemoveAll(filepath.Join(dir, left)))
		}
	}
	return err
}

// wayOut returns, for an error, how to read a folder that is no checkpoint and has these files, or "".
func wayOut(dir string, names []string) string {
	at := func(file string) string { return filepath.Join(dir, bounded.Plain(file)) }
	for _, name := range names {
		_, step := stepOf(name)
		switch ext := strings.ToLower(filepath.Ext(name)); {
		case name == ".metadata":
			return fmt.Sprintf("; it is of torch.distributed.checkpoint: ringo ckpt convert %s NEW makes a checkpoint of it", at(""))
		case name == "adapter_model"+FileSuffix:
			return fmt.Sprintf("; it has adapters alone: name %s, for a model of peft.Apply", at(name))
		case step:
			return fmt.Sprintf("; it has several: name one, such as %s", at(name))
		case name == "pytorch_model.bin.index.json":
			return "; PyTorch wrote it, in several files: write it again in Python, by from_pretrained and save_pretrained of transformers"
		case ext == ".bin" || ext == ".pt" || ext == ".pth" || ext == ".ckpt":
			if slices.Contains(names, "pytorch_model.bin.index.json") {
				continue
			}
			beside := ""
			if name == "pytorch_model.bin" && slices.Contains(names, "config.json") { // a model needs both in one folder
				beside = ", and mv NEW/model* " + at("") + " puts it beside config.json"
			}
			return fmt.Sprintf("; PyTorch wrote %s: ringo ckpt convert %s NEW makes a checkpoint of it%s", bounded.Plain(name), at(name), beside)
		}
	}
	return ""
}
