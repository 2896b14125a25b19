package tcp_test

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/ringo-ml/ringo/dist/tcp"
)

// Two ranks meet. They would be two processes; ranks of package dist do this for themselves.
func ExampleJoin() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	secret, err := tcp.ParseSecret(tcp.NewSecret())
	if err != nil {
		panic(err)
	}
	var wg sync.WaitGroup
	for rank := range 2 {
		wg.Go(func() {
			c := tcp.Config{Rank: rank, Size: 2, Addr: l.Addr().String(), Secret: secret, Job: "example"}
			if rank == 0 {
				c.Listener = l
			}
			e, err := tcp.Join(context.Background(), c)
			if err != nil {
				panic(err)
			}
			defer e.Close()
			fmt.Println("joined through", e.Name())
		})
	}
	wg.Wait()
	// Output:
	// joined through tcp
	// joined through tcp
}
