// Package parquet reads Parquet files as a Dataset: columns of numbers, and of classes.
//
//	houses, err := parquet.Read("houses.parquet", parquet.Config{Target: "price"})
//	batches := data.NewLoader(houses, data.Config{Batch: 64, Shuffle: true, Sharder: r.World})
//
// It is a package of its own because of its library, github.com/parquet-go/parquet-go, which adds 15 MB to a program.
//
// The library trusts the lengths that a file gives. Before it reads, the footer and the header of each page are checked against the size
// of the file and this package's bounds; a panic of the library becomes an error. One thing has no bound: what a compressed page holds,
// if it is more than its header says. Read such files from people you trust, or uncompressed.
package parquet
