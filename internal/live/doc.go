// Package live is what a rank reports to the launcher of a job that is watched (ringo run -serve): a Report about twice a second, of
// limited size. The training loop gives steps and values to a Recorder, which allocates nothing. Package dist adds memory and
// communication and sends the report. Package cmd/ringo/live shows it.
package live
