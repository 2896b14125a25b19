package score

import (
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Counts is what is counted of the predictions of a classifier.
type Counts struct {
	classes int
	n       []float64 // for each class: rows predicted rightly, predicted, there; then rows by the place of the right class
}

// New returns the Counts of no rows, for so many classes.
func New(classes int) *Counts { return &Counts{classes, make([]float64, 4*max(classes, 0))} }

// Add counts this rank's rows. logits are [rows, classes], or probabilities; labels are [rows], numbers of classes. The prediction is
// the largest one, of equal ones the first. It reads the values, and so waits for the device.
func (c *Counts) Add(logits, labels tensor.Tensor) error {
	if logits.NDim() != 2 || logits.Dim(1) != c.classes || labels.Len() != logits.Dim(0) {
		return fmt.Errorf("score: logits are %v and labels %v: want [rows, %d] and [rows]", logits.Shape(), labels.Shape(), c.classes)
	}
	x, y := tensor.Floats(logits), tensor.Floats(labels)
	for row, label := range y {
		of, class := x[row*c.classes:][:c.classes], int(label)
		if class < 0 || class >= c.classes || float64(class) != label {
			return fmt.Errorf("score: row %d has label %v: want 0 to %d", row, label, c.classes-1)
		}
		best, place := 0, 0
		for i, v := range of {
			if v != v {
				return fmt.Errorf("score: row %d has a logit that is NaN", row)
			}
			if v > of[best] {
				best = i
			}
			if v > of[class] || v == of[class] && i < class {
				place++
			}
		}
		if best == class {
			c.n[class]++
		}
		c.n[c.classes+best]++
		c.n[2*c.classes+class]++
		c.n[3*c.classes+place]++
	}
	return nil
}

// Sum returns the Counts of the rows of all ranks. It is collective.
func (c *Counts) Sum(g *dist.Group) (*Counts, error) {
	all := &Counts{c.classes, slices.Clone(c.n)}
	return all, g.SumFloats(all.n)
}

// Rows returns how many rows were counted.
func (c *Counts) Rows() int { return int(sum(c.n[3*c.classes:])) }

// Accuracy returns the part of the rows that is predicted rightly; NaN of no rows. F1 over all rows together (micro) is the same.
func (c *Counts) Accuracy() float64 { return c.TopK(1) }

// TopK returns the part of the rows whose class is among the k largest logits; NaN of no rows. Of equal ones, the first are larger.
func (c *Counts) TopK(k int) float64 {
	places := c.n[3*c.classes:]
	return sum(places[:min(max(k, 0), c.classes)]) / sum(places)
}

// F1 returns the harmonic mean of precision and recall of a class: 0 where it is neither there nor predicted, as of scikit-learn.
func (c *Counts) F1(class int) float64 {
	both := c.n[c.classes+class] + c.n[2*c.classes+class]
	if both == 0 {
		return 0
	}
	return 2 * c.n[class] / both
}

// MacroF1 returns the mean of F1 over the classes that are there or predicted, as of scikit-learn's f1_score(average="macro"); NaN of no
// rows.
func (c *Counts) MacroF1() float64 {
	total, n := 0.0, 0.0
	for class := range c.classes {
		if c.n[c.classes+class]+c.n[2*c.classes+class] > 0 {
			total, n = total+c.F1(class), n+1
		}
	}
	return total / n
}

func sum(x []float64) (s float64) {
	for _, v := range x {
		s += v
	}
	return s
}

// ROC gathers the scores of two classes.
type ROC struct{ scores [2][]float64 } // of the rows of classes 0 and 1

// Add takes this rank's rows: scores of class 1, such as logits, [rows] or [rows, 1], and labels 0 and 1 of the same shape.
func (r *ROC) Add(scores, labels tensor.Tensor) error {
	if scores.Len() != labels.Len() || scores.NDim() == 0 || scores.Len() != scores.Dim(0) {
		return fmt.Errorf("score: scores are %v and labels %v: want [rows], or [rows, 1]", scores.Shape(), labels.Shape())
	}
	x := tensor.Floats(scores)
	for row, label := range tensor.Floats(labels) {
		switch {
		case label != 0 && label != 1:
			return fmt.Errorf("score: row %d has label %v: want 0 or 1", row, label)
		case x[row] != x[row]:
			return fmt.Errorf("score: row %d has a score that is NaN", row)
		}
		r.scores[int(label)] = append(r.scores[int(label)], x[row])
	}
	return nil
}

// AUC returns the area under the ROC curve over the rows of all ranks: how likely a row of class 1 has a larger score than one of class
// 0, where an equal one counts half. It is exact, and NaN unless both classes are there. It is collective.
func (r *ROC) AUC(g *dist.Group) (float64, error) {
	var all [2][]float64
	for class, mine := range r.scores {
		var err error
		if all[class], err = gather(g, mine); err != nil {
			return 0, err
		}
		slices.Sort(all[class])
	}
	below, upTo, pairs := 0, 0, 0.0 // of class 0, beside a score
	for _, v := range all[1] {
		for below < len(all[0]) && all[0][below] < v {
			below++
		}
		for upTo < len(all[0]) && all[0][upTo] <= v {
			upTo++
		}
		pairs += float64(float64(below+upTo) / 2)
	}
	if len(all[0]) == 0 || len(all[1]) == 0 {
		return math.NaN(), nil
	}
	return pairs / float64(len(all[0])) / float64(len(all[1])), nil
}

// gather returns the numbers of all ranks.
func gather(g *dist.Group, mine []float64) ([]float64, error) {
	sizes := make([]int64, g.Size())
	if err := g.AllGather(tensor.FromSlice(sizes, len(sizes)), tensor.FromSlice([]int64{int64(len(mine))}, 1)).Wait(); err != nil {
		return nil, err
	}
	counts, total := make([]int, len(sizes)), 0
	for i, n := range sizes {
		counts[i] = int(n)
		total += int(n)
	}
	all := make([]float64, total)
	return all, g.AllGatherV(tensor.FromSlice(all, total), tensor.FromSlice(mine, len(mine)), counts).Wait()
}
