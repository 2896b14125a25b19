// Package parquet reads Parquet files as a Dataset: columns of numbers, and of classes.
//
//	houses, err := parquet.Read("houses.parquet", parquet.Config{Target: "price"})
//	batches := data.NewLoader(houses, data.Config{Batch: 64, Shuffle: true, Sharder: r.World})
//
// It is a separate package because its library, github.com/parquet-go/parquet-go, adds 15 MB to a program.
//
// The library trusts the lengths in a file. So this package first checks the footer and the header of each page against the size of the
// file and its own limits. It also decompresses each page once without keeping the result: if that is larger than the header says, the file
// is refused. A panic of the library becomes an error.
package parquet
