package pp_test

import (
	"fmt"
	"os"

	"github.com/ringo-ml/ringo/pp"
)

// What three ranks do with four microbatches, what that takes, and what is too much.
func ExampleSchedule_Check() {
	s := pp.OneF1B(3, 4)
	if err := s.WriteCSV(os.Stdout); err != nil {
		fmt.Println(err)
	}
	rep, err := s.Check(pp.Costs{F: 1, I: 1, W: 1}, pp.Limit{Live: 3})
	fmt.Printf("%v units of time, %.0f%% of it waits; microbatches that ranks hold: %v %v\n", rep.Time, 100*rep.Bubble, rep.Live, err)
	_, err = pp.GPipe(1, 4).Check(pp.Costs{F: 1, I: 1, W: 1}, pp.Limit{Live: 3})
	fmt.Println(err)
	// Output:
	// 0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3
	// 1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3
	// 2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3
	// 18 units of time, 33% of it waits; microbatches that ranks hold: [3 2 1] <nil>
	// pp: schedule gpipe: rank 0 holds activations of 4 microbatches, and the limit is 3
}
