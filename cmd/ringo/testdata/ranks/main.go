// Program ranks prints its arguments and waits to be interrupted if the first one is "wait".
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	fmt.Printf("rank %s of %s, timeout %s, threads %s, args %q\n", os.Getenv("RINGO_RANK"), os.Getenv("RINGO_WORLD_SIZE"),
		os.Getenv("RINGO_TIMEOUT"), os.Getenv("RINGO_THREADS"), os.Args[1:])
	if len(os.Args) > 1 && os.Args[1] == "wait" {
		<-time.After(time.Hour)
	}
}
