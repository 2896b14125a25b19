// Package parquet reads Parquet files as a Dataset: columns of numbers, and of classes.
//
//	houses, err := parquet.Read("houses.parquet", parquet.Config{Target: "price"})
//	batches := data.NewLoader(houses, data.Config{Batch: 64, Shuffle: true, Sharder: r.World})
//
// It is a package of its own because of its library, github.com/parquet-go/parquet-go, which adds 15 MB to a program.
//
// The library trusts the lengths that a file gives. Before it reads, the footer and the header of each page are checked against the size
// of the file and this package's bounds, and each compressed page is read through, without keeping what it holds: if that is more than its
// header says, the file is refused. A panic of the library becomes an error.
package parquet
