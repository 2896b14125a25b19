// Package live is the page of ringo run -serve: what a job does while it runs.
//
//	state.go    what is known of the job: a launch.Watcher, which a Server is
//	series.go   values by step, of bounded length
//	slowest.go  which rank was the slowest in each step
//	serve.go    the web server: who is let in, how clients are told
//	page.*      the page, without anything from elsewhere
//
// Everything has a bound: reports, names, points, lines, clients. What ranks say is encoded at most twice a second, however
// many clients there are, and only when there are any; a client that reads too slowly is dropped.
package live
