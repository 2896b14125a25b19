//go:build unix

package pp_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
)

// TestMain runs this binary as a stage of a pipeline when a test below started it.
func TestMain(m *testing.M) {
	if spec := os.Getenv("PP_TEST_CHILD"); spec != "" {
		err := struckRank(spec)
		fmt.Printf("ended %d %v\n", time.Now().UnixNano(), err)
		return
	}
	os.Exit(m.Run())
}

// strike sends its process a signal in an action of the third step. It is the identity.
type strike struct {
	pp.Action
	signal syscall.Signal
	tape   *tensor.Tape // which counts steps
}

func (*strike) Name() string { return "strike" }

func (s *strike) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	s.in(pp.F)
	return in[0]
}

func (s *strike) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	s.in(pp.B)
	grads[0] = g
}

func (s *strike) in(k pp.Kind) {
	if k == s.Kind && s.tape.State().Step == 2 {
		fmt.Printf("struck %d\n", time.Now().UnixNano())
		_ = syscall.Kill(os.Getpid(), s.signal)
		select {}
	}
}

// struckRank trains one of three stages, as a process, until an error. spec is the action and the signal that ends or stops a rank in it.
func struckRank(spec string) error {
	const micros = 6
	name, number, _ := strings.Cut(spec, ",")
	action, wrong := pp.ParseAction(name)
	sig, bad := strconv.Atoi(number)
	return errors.Join(wrong, bad, dist.Run(context.Background(), dist.Config{Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		rank, tape := r.World.Rank(), tensor.NewTape(r.Device)
		c := newChain(3, func(i int) bool { return i == rank })
		run := c.stage(rank, micros)
		params := nn.Init(c, r.Device, tensor.Float64, 1)
		opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.5, Norm: r.World})
		g := r.World.With(dist.Name("pp"))
		p, err := pp.New(pp.Config{Group: g, Schedule: pp.OneF1B(3, micros), Tape: tape, Params: params, Optimizer: opt,
			Stages: map[int]pp.Stage{rank: func(t *tensor.Tape, micro int, x nn.T) nn.T {
				if x = run(t, micro, x); rank == action.Stage && micro == action.Micro {
					x = t.Apply(&strike{action, syscall.Signal(sig), tape}, x)
				}
				return x
			}}})
		for err == nil {
			if _, err = p.Step(); err == nil {
				err = opt.Step()
			}
		}
		return err
	}))
}

// requireNamed strikes a rank in an action. The others must end within the timeout and 2 s, with its name. Where a process got no processor
// for so long before, it tries once more with more patience.
func requireNamed(t *testing.T, engine, action string, sig syscall.Signal, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	spec := fmt.Sprintf("PP_TEST_CHILD=%s,%d", action, sig)
	cmds, outs := disttest.StartProcesses(ctx, t, 3, spec, engine, "RINGO_TIMEOUT="+timeout.String())
	victim := int(action[0] - '0')
	for rank, c := range cmds {
		if rank != victim {
			require.NoError(t, c.Wait(), &outs[rank])
		}
	}
	_ = cmds[victim].Process.Kill() // it may be stopped
	_ = cmds[victim].Wait()
	struck, _ := line(outs[victim].String(), "struck")
	named := func(rank int) bool { // also "rank 0: no progress"
		_, says := line(outs[rank].String(), "ended")
		return rank == victim || regexp.MustCompile(fmt.Sprintf(`rank %d( \(|: no progress)`, victim)).MatchString(says)
	}
	if (struck == 0 || !named(0) || !named(1) || !named(2)) && timeout < 3*time.Second {
		requireNamed(t, engine, action, sig, 4*timeout)
		return
	}
	for rank := range cmds {
		if rank == victim {
			continue
		}
		ended, says := line(outs[rank].String(), "ended")
		took := time.Duration(ended - struck)
		assert.True(t, named(rank), "rank %d names another one: %s", rank, says)
		assert.Less(t, took, timeout+2*time.Second+reliability.Slack, "rank %d: %s", rank, &outs[rank])
		t.Logf("rank %d ended after %v: %s", rank, took, says)
	}
}

// line finds what a process printed: a word, when that was, and more.
func line(out, word string) (at int64, says string) {
	if m := regexp.MustCompile(`(?m)^` + word + ` (\d+)(.*)`).FindStringSubmatch(out); m != nil {
		at, _ = strconv.ParseInt(m[1], 10, 64)
		says = m[2]
	}
	return at, says
}

// A stage that is killed or stopped, in warm-up, in the steady state and in cool-down: no rank waits for it for ever, and all name it.
func TestStageDies(t *testing.T) {
	actions, long := []string{"0F3", "1B5"}, reliability.Long(t)
	if long {
		actions = []string{"0F0", "0F1", "0F3", "0B2", "0B4", "0B5", "1F0", "1F3", "1B2", "1B5"}
	}
	for i, action := range actions {
		for name, engine := range map[string]string{"tcp": "RINGO_SHM=0", "shm": "RINGO_SHM=1"} {
			for how, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
				if !long && ((name == "tcp") != (i == 0) || (how == "stopped") != (i == 0)) {
					continue
				}
				t.Run(fmt.Sprintf("%s %s, %s", action, how, name), func(t *testing.T) {
					t.Parallel()
					requireNamed(t, engine, action, sig, time.Second)
				})
			}
		}
	}
}

func TestLongStageDies(t *testing.T) { reliability.AsLong(t, TestStageDies) }
