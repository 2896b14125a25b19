package disttest

import (
	"errors"
	"fmt"
	"net"
	"slices"
)

// timings are how long operations took, in ns, and each time right before them a piece of computation with a few wake-ups:
// the baseline, which a machine that gets busy slows down like the operations.
type timings struct{ base, small, large []float64 }

// quantile returns the value below which the part q of x lies.
func quantile(q float64, x []float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	return x[int(q*float64(len(x)))]
}

// drift is how much longer operations took in the last and in the fourth fifth than in the first, in units of the baseline
// of the same time. What has become slower is never fast, and ranks that must wait for a core often are: so the fast
// samples count, not the median. The very first samples warm up.
func (l *timings) drift(x []float64) (last, fourth float64) {
	warm := len(x) / 50
	x, base := x[warm:], l.base[warm:]
	n := max(len(x)/5, 1)
	fifth := func(from int) float64 {
		from = max(from, 0)
		return quantile(0.1, x[from:from+n]) / quantile(0.1, base[from:from+n])
	}
	first, end := fifth(0), len(x)
	return fifth(end-n) / first, fifth(end-2*n) / first
}

// slower returns an error when operations have become slower. What leaks goes on to slow them down: a burst of load at the
// end, which hits operations harder than the baseline, is no drift.
func (l *timings) slower() error {
	var errs []error
	for name, x := range map[string][]float64{"small": l.small, "large": l.large} {
		if last, fourth := l.drift(x); last > 2 && fourth > 1.5 {
			errs = append(errs, fmt.Errorf("%s all-reduces take %.2f times as long as at the beginning", name, last))
		}
	}
	return errors.Join(errs...)
}

func (l *timings) String() string {
	small, _ := l.drift(l.small)
	large, _ := l.drift(l.large)
	return fmt.Sprintf("%d samples; 32 B all-reduce %.1f µs, 20 kB %.1f µs, baseline %.1f µs; drift ×%.2f and ×%.2f", len(l.base),
		quantile(0.5, l.small)/1e3, quantile(0.5, l.large)/1e3, quantile(0.5, l.base)/1e3, small, large)
}

// echo is a goroutine that sends back each byte, over a connection: a wake-up there and one back, as operations need them.
type echo struct{ near, far net.Conn }

func newEcho() (*echo, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	var e echo
	if e.near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		return nil, err
	}
	if e.far, err = l.Accept(); err != nil {
		e.near.Close()
		return nil, err
	}
	go func() {
		var b [1]byte
		for {
			if _, err := e.far.Read(b[:]); err != nil {
				return
			}
			if _, err := e.far.Write(b[:]); err != nil {
				return
			}
		}
	}()
	return &e, nil
}

// times sends a byte and waits for it, n times.
func (e *echo) times(n int) error {
	var b [1]byte
	for range n {
		if _, err := e.near.Write(b[:]); err != nil {
			return err
		}
		if _, err := e.near.Read(b[:]); err != nil {
			return err
		}
	}
	return nil
}

func (e *echo) close() {
	e.near.Close()
	e.far.Close()
}
