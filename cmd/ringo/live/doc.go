// Package live is the page of ringo run -serve: what a job does while it runs.
//
//	state.go    the state of the job; a Server is a launch.Watcher by it
//	series.go   values by step, with a limited number of points
//	slowest.go  the slowest rank of each step
//	serve.go    the web server: access, and events for clients
//	metrics.go  the state as numbers, for Prometheus and readers of expvar
//	page.*      the page, which loads nothing from other sites
//
// Everything has a limit: reports, names, points, lines, clients. The state is encoded for the page at most twice a second,
// for all clients together, and not at all without clients. A client that reads too slowly is dropped.
package live
