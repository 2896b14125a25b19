// Package live is what a rank tells whoever watches its job (ringo run -serve): a Report about twice a second, of bounded size.
// The training loop notes steps and values in a Recorder, which allocates nothing; package dist adds memory and communication
// and sends the report; package cmd/ringo/live shows it.
package live
