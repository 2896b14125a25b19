// Package transform makes features of the columns of a table: numbers with mean 0 and deviation 1, categories as one-hot vectors, and
// values in place of missing ones. What it needs to know, it learns from the training part alone.
//
//	table, err := data.CSV("houses.csv", data.CSVConfig{Header: true, Target: "price", Categories: []string{"town"}, Missing: true})
//	sets, err := data.Split(table, 1, 0.8, 0.2)
//	prep, err := transform.Fit(sets[0], transform.Config{Fill: transform.Mean})
//	train, err := prep.Apply(sets[0])
//	test, err := prep.Apply(sets[1])
//	st := ckpt.State{Params: params, Optimizer: opt, Extra: map[string]any{"transform": prep}}
//
// All ranks compute the same from the same table. A checkpoint has the Transform as JSON. A later program loads it into an empty Transform,
// before it makes the model, and applies it to new data: the model reads len(fresh.Columns) numbers.
//
//	var prep transform.Transform
//	st := ckpt.State{Extra: map[string]any{"transform": &prep}}
//	_, err := ckpt.LoadFile(ctx, file, &st, ckpt.LoadConfig{AllowUnexpected: []string{"*"}}) // Load for what a Saver wrote
//	fresh, err := prep.Apply(table) // of new rows: they need no target (data.CSVConfig.NoTarget)
package transform
