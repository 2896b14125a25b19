package layouts

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/pp"
)

// factors are what a layout and its program have.
func factors(p program, l layout) (list []string) {
	for name, has := range map[string]bool{
		"tied": p.Tied, "lora": p.LoRA > 0, "frozen": len(p.Frozen) > 0, "dropout": p.Dropout > 0, "ignored": p.Ignored,
		"one micro": p.Micro == 1, "uneven micros": p.Batch%p.Micro != 0, "experts": p.Experts.Experts > 0, "capacity": p.Experts.Capacity > 0,
		"balance": p.Experts.Balance > 0, "sequences": p.Experts.Sequence > 0, "clip": p.Clip > 0,
		"pp": l.PP > 1, "dp": l.DP > 1, "fsdp": l.FSDP > 1, "ep": l.EP > 1, "ring": l.Ring > 1, "cp": l.CP > 1, "tp": l.TP > 1,
		"sequence": l.Sequence, "chunks": l.Chunks > 1, "again": l.Again, "once": l.Stage > 0 && l.Once, "offload": l.Stage > 0 && l.Offload,
		"any rows": l.Cuts != 0, "uneven layers": l.PP > 1 && slices.Max(l.Parts) > slices.Min(l.Parts),
	} {
		if has {
			list = append(list, name)
		}
	}
	return append(list, []string{"ddp", "fsdp 1", "fsdp 2", "fsdp 3"}[l.Stage], fmt.Sprint(p.Kind), "schedule "+l.Schedule)
}

// Of the layouts that are tried, some have each two factors, unless one excludes the other.
func TestLongEachTwoFactorsMeet(t *testing.T) {
	reliability.SkipUnlessLong(t)
	const seeds = 3000
	met, all, least := map[[2]string]int{}, map[string]bool{}, seeds
	for seed := range uint64(seeds) {
		r, p, most := randomProgram(seed)
		l := randomLayout(r, p, most)
		if l.refused(p) != nil {
			continue
		}
		for _, a := range factors(p, l) {
			all[a] = true
			for _, b := range factors(p, l) {
				met[[2]string{a, b}]++
			}
		}
	}
	var schedules []string
	for _, name := range append(pp.Names(), "") {
		schedules = append(schedules, "schedule "+name)
	}
	excluded := [][]string{schedules, {"ddp", "fsdp 1", "fsdp 2", "fsdp 3"}, {"ddp", "fsdp"}, {"ddp", "once"}, {"ddp", "offload"},
		{"gpt2", "llama"}, {"ring", "capacity"}, {"ring", "sequences"}, {"pp", "schedule "}, {"uneven layers", "schedule "},
		{"one micro", "uneven micros"}, {"one micro", "schedule dualpipev"}}
	for a := range all {
		for b := range all {
			if a == b || slices.ContainsFunc(excluded, func(x []string) bool { return slices.Contains(x, a) && slices.Contains(x, b) }) {
				continue
			}
			n := met[[2]string{a, b}]
			require.NotZero(t, n, "%q and %q are in no layout of %d seeds", a, b, seeds)
			least = min(least, n)
		}
	}
	require.Len(t, all, 26+4+2+len(schedules)-1, "factors")
	t.Logf("two factors meet in %d layouts or more", least)
}
