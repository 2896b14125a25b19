package timeline

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/trace"
)

const madeUpSummary = `
3 ranks, 1.980 ms; 2 steps a rank, of 0.950 ms (median; 0.950 to 0.950)
rank 2: the last 5 spans did not fit

Phases, mean over ranks; the longest is a rank's mean
  PHASE     MS A STEP  OF IT  LONGEST  ON RANK
  backward      0.707  74.4%    0.790        0
  forward       0.183  19.3%    0.350        2
  loader        0.010   1.1%    0.010        0
  (rest)        0.050   5.3%

Computation, all ranks
  OPERATION  CALLS     MS  µs EACH  OF TIME
  matmul        12  1.280    106.7    21.5%
  sum            6  0.060     10.0     1.0%

Communication, all ranks; in flight is from issue to end, exposed is what ranks wait for
  COMMUNICATION              CALLS  BYTES  MS IN FLIGHT  MS EXPOSED
  allreduce:direct of world      6  24576         2.380       2.140
  broadcast:chain of world       3     48         0.060       0.000
  send:linear of world           1      8         0.010       0.000

Exposed communication, by rank
  RANK  MS IN FLIGHT  MS EXPOSED  OF TIME                 MOST OF IT
  0            0.980       0.880    44.4%  allreduce:direct of world
  1            0.980       0.880    44.4%  allreduce:direct of world
  2            0.480       0.380    19.2%  allreduce:direct of world

Who came last to collectives, and how long after the middle one of the others
  RANK  LAST  OF   SHARE  MS MEDIAN  MS LARGEST  MS IN ALL                 MOST OF IT
  0        0   2    0.0%
  1        0   2    0.0%
  2        2   2  100.0%      0.300       0.300      0.500  allreduce:direct of world
`

func TestSummary(t *testing.T) {
	ranks := madeUp()
	clocks := Align(ranks)
	var b strings.Builder
	Summarize(&b, ranks, clocks)
	require.Equal(t, strings.TrimPrefix(madeUpSummary, "\n"), b.String())
	ranks[0].Spans = slices.DeleteFunc(ranks[0].Spans, func(s trace.Span) bool { return s.Track == trace.Comm && s.Seq == 2 })
	b.Reset()
	Summarize(&b, ranks, clocks)
	require.Contains(t, b.String(), "\n  2        1   1  100.0%      0.200", "nobody knows when rank 0 began the other one")
	b.Reset()
	Summarize(&b, nil, nil)
	require.Equal(t, "no ranks\n", b.String())
}
