// Package score measures classifiers: accuracy, top-k accuracy, F1, and the area under the ROC curve, over the rows of all ranks.
//
//	s := score.New(10)
//	for _, b := range tests.Epoch(ctx, 0) {
//		err := s.Add(model.Forward(tape.Input(b.X)), b.Y)
//		tape.Reset()
//	}
//	all, err := s.Sum(r.World) // the ranks that have different rows
//	r.Logf("accuracy %.3f, top 5 %.3f, F1 %.3f", all.Accuracy(), all.TopK(5), all.MacroF1())
//
// Ranks add up counts, so that the values are those of one rank, to the last bit, however many rows each has.
package score
