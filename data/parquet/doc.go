// Package parquet reads Parquet files, and folders of them, as a Dataset: columns of numbers, of lists of numbers, and of classes.
//
//	houses, err := parquet.Read("houses.parquet", parquet.Config{Target: "price"})
//	batches := data.NewLoader(houses, data.Config{Batch: 64, Shuffle: true, Sharder: r.World})
//
// As of data.CSV, columns of names become numbers ([Config].Categories), values may be missing, and rows that cannot be read are left out.
//
// It is a separate package because its library, github.com/parquet-go/parquet-go, adds 15 MB to a program.
//
// The library trusts the lengths in a file. So this package first checks the footer and the header of each page against the size of the
// file and its own limits. It also decompresses each page once: if that has more bytes or values than the header says, the file is
// refused. A panic of the library becomes an error.
//
// A file may take 16 times its size in memory, and 64 MiB. So, beyond the first 16 million values, each value of 4 bytes must have 2 bits
// in the file. A file of equal values that are compressed better than that is refused; it can be written without compression.
package parquet
